"""Benchmarks by name: their data, what is known about it, and how to train on it."""

from __future__ import annotations

from pathlib import Path

from ..names import unknown
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
    "stratified_split",
]

_tasks: dict[str, Task] = {
    task.name: task for task in (*archive_tasks(), *arena_tasks(), *image_tasks())
}


def available_tasks() -> tuple[str, ...]:
    """The names that `get_task` knows."""
    return tuple(sorted(_tasks))


def get_task(name: str) -> Task:
    """A task by name, e.g. `get_task("uea/JapaneseVowels")`."""
    if name not in _tasks:
        raise ValueError(unknown("task", name, available_tasks()))
    return _tasks[name]


def data_status(data_dir: Path | str | None = None) -> list[DataStatus]:
    """For every task: which splits are at hand and where, what they are, how to get the others."""
    return [get_task(name).status(data_dir) for name in available_tasks()]
