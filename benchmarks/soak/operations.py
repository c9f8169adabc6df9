"""What a process does to itself at one of its file operations: it dies, or is told "no space"."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WATCHED = ("fsync", "rename", "replace", "mkdir", "unlink")


@dataclass(frozen=True)
class Counted:
    """Counts the operations into a file, to know how many there are."""

    path: Path

    def __call__(self) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        watch(lambda number, name, path, data: os.pwrite(handle, str(number).encode(), 0))


@dataclass(frozen=True)
class Struck:
    """Killed at an operation: before it, or with half of the bytes written."""

    at: int

    def __call__(self) -> None:
        watch(self._strike)

    def _strike(self, number: int, name: str, path: Any, data: bytes | None) -> None:
        if number == self.at:
            if data is not None:
                with open(path, "wb", buffering=0) as file:
                    file.write(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Refused:
    """From an operation on, `times` of them fail with an error of the system."""

    at: int
    error: int
    times: int

    def __call__(self) -> None:
        watch(self._refuse)

    def _refuse(self, number: int, name: str, path: Any, data: bytes | None) -> None:
        if self.at <= number < self.at + self.times and name != "unlink":
            if data is not None:
                with open(path, "wb", buffering=0) as file:
                    file.write(data[: len(data) // 2])
            raise OSError(self.error, os.strerror(self.error))


def watch(before: Callable[[int, str, Any, bytes | None], object]) -> None:
    """Call `before(number, name, path, data)` before every operation of this process that changes a
    file; data are the bytes of a whole file that is written."""
    calls = 0

    def watched(name: str, operation: Callable[..., Any], writes: bool = False) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            before(calls, name, path, arguments[0] if writes else None)
            return operation(path, *arguments, **options)

        return call

    for name in WATCHED:
        setattr(os, name, watched(name, getattr(os, name)))
    Path.write_bytes = watched("write", Path.write_bytes, writes=True)  # type: ignore[method-assign]
