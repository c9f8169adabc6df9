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
    "uea": (".uea", "archive_tasks"),
    "lra": (".lra", "arena_tasks"),
    "images": (".images", "image_tasks"),
    "made": (".made", "made_tasks"),
    "rl": (".rl.sets", "rl_tasks"),
    "events": (".events.tasks", "event_tasks"),
    "lm": (".language.tasks", "language_tasks"),
    "table": (".table.tasks", "table_tasks"),
    "own": (".own.task", "own_tasks"),
}
_HOMES = {"Batch": ".examples"}  # other names are those of series


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, ".series"), __name__), name)


@cache
def _family(prefix: str) -> dict[str, Task]:
    """The tasks of the package whose names begin so; read when they are first asked for."""
    if prefix not in _FAMILIES:
        return {}
    home, name = _FAMILIES[prefix]
    return {task.name: task for task in getattr(import_module(home, __name__), name)()}


def _find(name: str) -> Task | None:
    return _tasks.get(name) or _family(name.partition("/")[0]).get(name)


def register_task(task: Task) -> None:
    """Make a task available under its name."""
    if _find(task.name) is not None:
        raise ValueError(f"task {task.name!r} is registered twice")
    _tasks[task.name] = task


def available_tasks() -> tuple[str, ...]:
    """The names that `get_task` knows."""
    load_plugins()
    return tuple(sorted({*_tasks, *(name for prefix in _FAMILIES for name in _family(prefix))}))


def get_task(name: str) -> Task:
    """A task by name, e.g. `get_task("uea/JapaneseVowels")`."""
    if (task := _find(name)) is None:
        known = available_tasks()  # with those of plugins
        if (task := _find(name)) is None:
            raise ValueError(unknown("task", name, known))
    return task


def data_status(data_dir: Path | str | None = None) -> list[DataStatus]:
    """For every task: which splits are here, where and what they are, how to get the others."""
    return [get_task(name).status(data_dir) for name in available_tasks()]
