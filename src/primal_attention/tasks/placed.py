"""Tasks whose splits lie somewhere, mostly in a data folder that the user names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..names import unknown
from .base import DataError, DataStatus, Task
from .folders import ENVIRONMENT, data_folder

Kind = TypeVar("Kind")  # of a split
Place = Path | Traversable


@dataclass(frozen=True, kw_only=True)
class PlacedTask(Task, Generic[Kind]):
    """A task that finds the places of its splits, and reads a split from its place."""

    facts: str

    @abstractmethod
    def places(self, data_dir: Path | str | None) -> Mapping[str, Place]:
        """Where the available splits are."""

    @abstractmethod
    def read(self, place: Any, split: str) -> Kind:
        """The split that lies there."""

    @abstractmethod
    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        """What to do about splits that are missing."""

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] | None = None
    ) -> dict[str, Kind]:
        """The splits asked for, else all."""
        wanted = self.splits if splits is None else splits
        for split in wanted:
            if split not in self.splits:
                raise ValueError(unknown(f"split of {self.name}:", split, self.splits))
        places = self.places(data_dir)
        missing = [split for split in wanted if split not in places]
        if missing:
            raise DataError(
                f"the {missing[0]} split of {self.name} is not here; "
                f"{self.how_to_get(data_dir, missing)}"
            )
        return {split: self.read(places[split], split) for split in wanted}

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        places = self.places(data_dir)
        missing = tuple(split for split in self.splits if split not in places)
        how = self.how_to_get(data_dir, missing) if missing else ""
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
