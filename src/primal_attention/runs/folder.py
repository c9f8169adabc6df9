"""The folder of a run, created whole and never overwritten.

config.json       the settings, complete
environment.json  versions and machine
data.json         fingerprints of the data
reader.json       how new cases are read: scale, lengths, classes, columns
status.json       "running", "interrupted", "failed" (with the reason) or "finished"
metrics.jsonl     losses of every step, accuracy of every epoch
checkpoints/      the last two
best.safetensors, best.json   the weights of the best epoch, where one is chosen
last.safetensors              else those of the last
result.json       what came out
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import RunError
from .files import TEMPORARY, explained, read_object, remove_temporary, temporary, write_json

WEIGHTS = "best.safetensors"
MEMORY = "memory.safetensors"  # what some models have to know beside their weights


def create_folder(
    root: Path | str, name: str | None, stem: str, documents: Mapping[str, Any]
) -> Path:
    """Make a folder with JSON documents {file name: value} under root; it appears complete or not
    at all. Without a name it is `<stem>-<n>` with the first n that is free."""
    root = Path(root)
    if name is not None:
        _check_name(name)
    with explained(f"make a run folder in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        beside = temporary(root / (name or stem))
        beside.mkdir()
        try:
            for file, value in documents.items():
                write_json(beside / file, value)
            return _rename(beside, root, name, stem)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


def _rename(beside: Path, root: Path, name: str | None, stem: str) -> Path:
    number = 1
    while True:
        path = root / (name or f"{stem}-{number:03d}")
        if not path.exists():
            try:
                os.rename(beside, path)
                return path
            except OSError as error:  # another process was faster
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
        if name is not None:
            raise RunError(
                f"{path} exists already; continue it with `primal resume {path}` or choose another "
                "name"
            )
        number += 1


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[^/\\\0]+", name) or name.startswith("."):
        raise RunError(f"the name of a run is {name!r}; expected a word without slashes")


def folder_stem(task: str, attention: Sequence[str]) -> str:
    """How the folders of a model are called: "uea-JapaneseVowels-softmax+primal"."""
    return re.sub(r"[^\w.+-]+", "-", f"{task}-{'+'.join(attention)}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Own a run folder; a RunError if another process that is alive does."""
    with explained(f"write into {path}"):
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path} is in use by another process that is still running") from None
        remove_temporary(path)
        yield
    finally:
        os.close(handle)  # which unlocks


def write_status(path: Path, status: str, reason: str | None = None) -> None:
    with explained(f"write into {path}"):
        write_json(path / "status.json", {"status": status, "reason": reason})


@contextmanager
def status_kept(path: Path) -> Iterator[None]:
    """Keep status.json true while a run is at work in its folder."""
    write_status(path, "running")
    try:
        yield
    except BaseException as error:
        with suppress(RunError):  # the first error is the one to report
            if (path / "result.json").exists():  # too late to matter
                write_status(path, "finished")
            elif isinstance(error, KeyboardInterrupt):
                write_status(path, "interrupted")
            else:
                write_status(path, "failed", str(error) or repr(error))
        raise
    write_status(path, "finished")


def settle(path: Path) -> None:
    """A run that was killed between its result and its status is finished: say so, and remove what
    its last writer left. A folder that cannot be written to stays as it is."""
    if _is_finished(path) and not any(path.glob(f"{TEMPORARY}*")):
        return
    with suppress(RunError), locked(path):
        write_status(path, "finished")


def _is_finished(path: Path) -> bool:
    try:
        return bool(read_object(path / "status.json").get("status") == "finished")
    except RunError:
        return False
