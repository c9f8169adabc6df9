"""Time series of the UEA archive: the ten sets of the paper, and BasicMotions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..base import Task
from ..placed import PlacedTask
from ..recipes import tuned
from ..series import SeriesSet
from .archive import ARCHIVE, check_facts, find_splits, how_to_get, refuse_same_cases
from .recipes import TUNED, recipes
from .ts import read_ts

__all__ = ["ArchiveTask", "archive_tasks", "read_ts"]


@dataclass(frozen=True, kw_only=True)
class ArchiveTask(PlacedTask[SeriesSet]):
    """Classify the series of one set; the metric is accuracy."""

    set_name: str

    def places(self, data_dir: Path | str | None) -> dict[str, Path | Traversable]:
        return find_splits(self.set_name, data_dir)

    def read(self, place: Path | Traversable, split: str) -> SeriesSet:
        found = read_ts(place, name=f"{self.set_name} {split.upper()}")
        check_facts(found, ARCHIVE[self.set_name], split)
        return found

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return how_to_get(self.set_name, data_dir, missing)

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] | None = None
    ) -> dict[str, SeriesSet]:
        found = super().load(data_dir, splits=splits)
        if len(found) == len(self.splits):
            refuse_same_cases(found["train"], found["test"])
        return found

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        fields = super().recipe(name, attention)
        return fields | tuned(*TUNED[self.set_name], attention) if name == "paper" else fields


def archive_tasks() -> list[Task]:
    """A task for every set."""
    return [
        ArchiveTask(
            f"uea/{name}", f"{facts.about}: {facts}", recipes(name), facts=str(facts), set_name=name
        )
        for name, facts in ARCHIVE.items()
    ]
