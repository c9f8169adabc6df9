"""Tasks whose splits lie somewhere, mostly in a data folder that the user names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ..names import unknown
from .base import DataError, DataStatus, Task
from .examples import Part
from .folders import ENVIRONMENT, data_folder

Kind = TypeVar("Kind", bound=Part)


@dataclass(frozen=True, kw_only=True)
class PlacedTask(Task, Generic[Kind]):
    """A task that finds the places of its splits, and reads a split from its place."""

    facts: str

    @abstractmethod
    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        """Where the splits lie that are at hand."""

    @abstractmethod
    def read(self, place: Path, split: str) -> Kind:
        """The split that lies there."""

    @abstractmethod
    def how_to_get(self, data_dir: Path | str | None) -> str:
        """What to do about a split that is missing."""

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] | None = None
    ) -> dict[str, Kind]:
        """The splits asked for, else all."""
        wanted = self.splits if splits is None else splits
        for split in wanted:
            if split not in self.splits:
                raise ValueError(unknown(f"split of {self.name}:", split, self.splits))
        places = self.places(data_dir)
        for split in wanted:
            if split not in places:
                raise DataError(
                    f"the {split} split of {self.name} is not here; {self.how_to_get(data_dir)}"
                )
        return {split: self.read(places[split], split) for split in wanted}

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        places = self.places(data_dir)
        missing = tuple(split for split in self.splits if split not in places)
        how = self.how_to_get(data_dir) if missing else ""
        where = {split: str(place) for split, place in places.items()}
        return DataStatus(self.name, self.facts, where, missing, how)


def named_folder(data_dir: Path | str | None) -> str:
    """The data folder, for messages."""
    folder = data_folder(data_dir)
    return "<data folder>" if folder is None else str(folder)


def name_the_folder(data_dir: Path | str | None) -> str:
    """What to add to a message if no folder is named."""
    if data_folder(data_dir) is not None:
        return ""
    return f"; give the folder with --data-dir or {ENVIRONMENT}"
