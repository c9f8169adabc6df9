"""What the stores of data share: one process builds while others wait, and a listener follows."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from .base import DataError
from .folders import CACHE

WHOLE = "store.json"  # written last, so it says that the store is whole


class Building(NamedTuple):
    """A store is being built, which happens once: `done` of `total` cases (None: not known)."""

    name: str  # of what it holds, e.g. "lra/listops train"
    done: int
    total: int | None


Listener = Callable[[Building], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """Notify `listener` of every store that is built inside the `with`, however deep in calls."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(name: str, done: int, total: int | None) -> None:
    """Notify the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(Building(name, done, total))


@contextmanager
def building(store: Path, name: str, total: int | None = None) -> Iterator[bool]:
    """Lock the folder of a store; other processes that want it wait. Gives whether it must be
    filled: another process may have been faster."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        tell(name, 0, total)
        with open(store / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield not (store / WHOLE).is_file()
    except OSError as error:
        raise DataError(
            f"the store {store} cannot be written ({error}); name another folder in {CACHE}"
        ) from error


def damaged(store: Path, reason: object) -> DataError:
    """What to raise about a store that cannot be read."""
    return DataError(f"the store {store} is damaged ({reason}); remove it to build it again")
