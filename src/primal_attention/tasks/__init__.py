"""Benchmarks by name: their data, what is known about it, what is learned, and how to train on it.

Names are imported when they are first used, so that settings can be read without torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..names import unknown
from ..plugins import load_plugins
from .base import DataError, DataStatus, Task

if TYPE_CHECKING:
    from .examples import Batch
    from .series import Normaliser, SeriesData, SeriesSet, stratified_split

__all__ = [
    "Batch",
    "DataError",
    "DataStatus",
    "Normaliser",
    "SeriesData",
    "SeriesSet",
    "Task",
    "available_tasks",
    "data_status",
    "get_task",
    "register_task",
    "stratified_split",
]

_tasks: dict[str, Task] = {}  # of others, and what stands in for our own
_FAMILIES = {
    ".uea": "archive_tasks",
    ".lra": "arena_tasks",
    ".images": "image_tasks",
    ".rl.sets": "rl_tasks",
}
_HOMES = {"Batch": ".examples"}  # other names are those of series


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, ".series"), __name__), name)


@cache
def _own_tasks() -> dict[str, Task]:
    """The tasks of the package."""
    families = (getattr(import_module(home, __name__), name) for home, name in _FAMILIES.items())
    return {task.name: task for family in families for task in family()}


def register_task(task: Task) -> None:
    """Make a task available under its name."""
    if task.name in _own_tasks() or task.name in _tasks:
        raise ValueError(f"task {task.name!r} is registered twice")
    _tasks[task.name] = task


def available_tasks() -> tuple[str, ...]:
    """The names that `get_task` knows."""
    load_plugins()
    return tuple(sorted({*_own_tasks(), *_tasks}))


def get_task(name: str) -> Task:
    """A task by name, e.g. `get_task("uea/JapaneseVowels")`."""
    for known in (_tasks, _own_tasks()):
        if name in known:
            return known[name]
    if name not in (names := available_tasks()):
        raise ValueError(unknown("task", name, names))
    return _tasks[name]


def data_status(data_dir: Path | str | None = None) -> list[DataStatus]:
    """For every task: which splits are at hand and where, what they are, how to get the others."""
    return [get_task(name).status(data_dir) for name in available_tasks()]
