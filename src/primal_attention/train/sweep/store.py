"""One store for the results of many runs, that many processes may write to.

<root>/outcomes.jsonl    a line for every run that ended, appended under a lock
<root>/runs/<name>/      the run folders, named by what decides their result
<root>/claims/<name>     who is at work: locks, that the system frees when a process dies
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...runs.errors import RunError
from ...runs.files import explained
from ...runs.folder import folder_stem
from ...tasks import get_task
from ..config import EngineConfig, digest

Status = Literal["finished", "stopped", "failed", "paused"]
DEATHS = 3  # that a run may cause before it counts as failed


def data_of(config: EngineConfig) -> str:
    """Where the data of a run lies, if the task's name does not say which data it is; else ""."""
    return get_task(config.task).place(config.data_dir)


def key_of(config: EngineConfig) -> str:
    """What a store knows a run by: a hash of its settings, and of the place of such data."""
    settings, data = config.fingerprint(), data_of(config)
    return digest({"settings": settings, "data": data}) if data else settings


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, "stopped" as hopeless, failed, or "paused" for want of time, to be
    continued. `accuracy` is what was reported of a finished run, as a share of the whole, `curve`
    that of every epoch on the set that chooses the epoch, `cases` the size of the set that was
    reported; None where no cases are counted, as by a run that learns to act.

    `data` says where the data lies, if the task's name does not say which data it is."""

    fingerprint: str
    status: Status
    settings: Mapping[str, Any]
    run: str = ""
    label: str = ""
    accuracy: float | None = None
    selected: float | None = None  # of the chosen epoch, on the set that chooses it
    cases: int | None = None
    seconds: float = 0.0
    curve: tuple[float, ...] = field(default=())
    reason: str | None = None
    data: str = ""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do; what failed may be tried again."""
        return self.status in ("finished", "stopped")

    def __str__(self) -> str:
        config = self.settings
        name = f"{config.get('task')} {'+'.join(config.get('attention', ()))}"
        if "primal" in config.get("attention", ()):
            name += f" rank {config.get('rank')} eta {config.get('eta')}"
        name += f" seed {config.get('seed')}"
        if self.accuracy is None:
            return f"{name}: {self.status}: {self.reason}"
        value = f"{100 * self.accuracy:.1f}"
        return f"{name}: score {value}" if self.cases is None else f"{name}: {value} %"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self) | {"curve": list(self.curve)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        return cls(**{**values, "curve": tuple(values["curve"])})


class Store:
    """Outcomes by the fingerprint of their settings, in a folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        with explained(f"make {self.root}"):
            for folder in (self.runs, self._claims):
                folder.mkdir(parents=True, exist_ok=True)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def _claims(self) -> Path:
        return self.root / "claims"

    @property
    def _file(self) -> Path:
        return self.root / "outcomes.jsonl"

    def folder(self, config: EngineConfig) -> Path:
        """Where a run lies, or will."""
        return self.runs / f"{folder_stem(config.task, config.attention)}-{key_of(config)[:12]}"

    def outcomes(self) -> dict[str, Outcome]:
        """The last outcome of every fingerprint; a line that is only half written is left out."""
        if not self._file.exists():
            return {}
        lines = self._file.read_bytes().split(b"\n")[:-1]
        try:
            found = [Outcome.from_dict(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self._file} is not a list of outcomes: {error!r}") from error
        return {outcome.fingerprint: outcome for outcome in found}

    def add(self, outcome: Outcome) -> None:
        """Append an outcome: all of it or nothing, whoever else is writing."""
        line = json.dumps(outcome.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
        with explained(f"write {self._file}"), open(self._file, "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            _drop_half_line(file.fileno())
            data = memoryview(line.encode())
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())

    @contextmanager
    def claim(self, config: EngineConfig) -> Iterator[int | None]:
        """Own a run for the time of a `with`; None if a process that is alive does.

        Otherwise gives how many owners died in it before, without an exception, as a process
        does that the system kills for want of memory.
        """
        with explained(f"write into {self._claims}"):
            handle = os.open(self._claims / self.folder(config).name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            deaths = int(os.pread(handle, 20, 0) or b"0")
            _write_number(handle, deaths + 1)  # taken back below, unless this process dies
            try:
                yield deaths
            finally:
                _write_number(handle, 0)
        finally:
            os.close(handle)  # which unlocks


def _drop_half_line(handle: int) -> None:
    """Remove what a writer that was killed left behind the last whole line."""
    size = os.fstat(handle).st_size
    if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
        return
    whole = os.pread(handle, size, 0).rfind(b"\n") + 1
    os.ftruncate(handle, whole)


def _write_number(handle: int, number: int) -> None:
    os.pwrite(handle, str(number).encode(), 0)
    os.ftruncate(handle, len(str(number)))
