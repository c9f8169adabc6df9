"""Time series of the UEA archive: the ten sets of the paper, and BasicMotions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base import DataStatus, Task
from ..series import SeriesSet
from .archive import ARCHIVE, SPLITS, find_splits, how_to_get, load_set
from .recipes import recipes, tuned
from .ts import read_ts

__all__ = ["ArchiveTask", "archive_tasks", "read_ts"]


@dataclass(frozen=True)
class ArchiveTask(Task):
    """Classify the series of one set; the metric is accuracy."""

    set_name: str

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] = SPLITS
    ) -> dict[str, SeriesSet]:
        return load_set(self.set_name, data_dir, splits=splits)

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        places = find_splits(self.set_name, data_dir)
        missing = tuple(split for split in SPLITS if split not in places)
        return DataStatus(
            task=self.name,
            facts=str(ARCHIVE[self.set_name]),
            places={s: str(place) for s, place in places.items()},
            missing=missing,
            how_to_get=how_to_get(self.set_name, data_dir, missing) if missing else "",
        )

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        fields = super().recipe(name, attention)
        return fields | tuned(self.set_name, attention) if name == "paper" else fields


def archive_tasks() -> list[Task]:
    """A task for every set."""
    return [
        ArchiveTask(f"uea/{name}", f"{facts.about}: {facts}", recipes(name), name)
        for name, facts in ARCHIVE.items()
    ]
