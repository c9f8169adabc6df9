"""What the stores of data have in common: one process builds while others wait, and tells of it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple


class Building(NamedTuple):
    """A store is being built, which happens once: `done` of `total` cases (None: not known)."""

    name: str  # of what it holds, e.g. "lra/listops train"
    done: int
    total: int | None


Listener = Callable[[Building], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """While in it, `listener` is told of every store that is built, however deep in calls."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(name: str, done: int, total: int | None) -> None:
    """Tell who listens."""
    listener = _listener.get()
    if listener is not None:
        listener(Building(name, done, total))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Processes that want the same store wait for the one that builds it."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
