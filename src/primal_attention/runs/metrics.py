"""metrics.jsonl: one JSON object a line, as they come."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import RunError
from .files import explained

FLUSH_SECONDS = 1.0


class MetricsFile:
    """Appends lines and writes them out about once a second. A run that is resumed keeps the first
    `keep` bytes, those of its checkpoint, and writes the others again."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self._path = path
        self._lines: list[str] = []
        self._flushed = time.monotonic()
        with explained(f"write {path}"):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        if self._file.tell() < keep:
            self._file.close()
            raise RunError(f"{path} is shorter than its checkpoint says ({keep} bytes)")
        self._file.truncate(keep)

    def add(self, kind: str, values: Mapping[str, Any]) -> None:
        self._lines.append(json.dumps({"kind": kind, **values}, allow_nan=False) + "\n")
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        data = memoryview("".join(self._lines).encode())
        self._lines.clear()
        self._flushed = time.monotonic()
        with explained(f"write {self._path}"):
            while data:
                data = data[self._file.write(data) :]

    def save(self) -> int:
        """Make all lines last; returns the length of the file in bytes."""
        self.flush()
        with explained(f"write {self._path}"):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def read_metrics(run: Path | str) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; a last line that is only half written is left out."""
    path = Path(run) / "metrics.jsonl"
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(found[-1], dict):
            raise RunError(f"{path}, line {number} is {line[:40]!r}; expected a JSON object")
    return found
