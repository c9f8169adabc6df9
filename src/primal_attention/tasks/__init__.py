"""Benchmarks by name: their data, what is known about it, and how to train on it."""

from __future__ import annotations

from pathlib import Path

from ..names import unknown
from ..plugins import load_plugins
from .base import DataError, DataStatus, Task
from .examples import Batch
from .images import image_tasks
from .lra import arena_tasks
from .series import Normaliser, SeriesData, SeriesSet, stratified_split
from .uea import archive_tasks

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

_tasks: dict[str, Task] = {
    task.name: task for task in (*archive_tasks(), *arena_tasks(), *image_tasks())
}


def register_task(task: Task) -> None:
    """Make a task available under its name."""
    if task.name in _tasks:
        raise ValueError(f"task {task.name!r} is registered twice")
    _tasks[task.name] = task


def available_tasks() -> tuple[str, ...]:
    """The names that `get_task` knows."""
    load_plugins()
    return tuple(sorted(_tasks))


def get_task(name: str) -> Task:
    """A task by name, e.g. `get_task("uea/JapaneseVowels")`."""
    if name not in _tasks and name not in (known := available_tasks()):
        raise ValueError(unknown("task", name, known))
    return _tasks[name]


def data_status(data_dir: Path | str | None = None) -> list[DataStatus]:
    """For every task: which splits are here, where and what they are, how to get the others."""
    return [get_task(name).status(data_dir) for name in available_tasks()]
