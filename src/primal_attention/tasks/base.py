"""What a benchmark is: data, facts about it, and the settings to train with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..names import unknown
from .series import SeriesSet


class DataError(ValueError):
    """Data that is missing, broken, or not what its name promises."""


@dataclass(frozen=True)
class DataStatus:
    """Whether the data of a task is at hand; what `primal data` prints."""

    task: str
    facts: str
    places: Mapping[str, str]  # split -> where it lies, the splits at hand only
    missing: tuple[str, ...]  # splits that are not at hand
    how_to_get: str

    @property
    def complete(self) -> bool:
        return not self.missing


@dataclass(frozen=True)
class Task(ABC):
    """A benchmark by name. Recipes are fields of a run's configuration, by recipe name."""

    name: str
    description: str
    recipes: Mapping[str, Mapping[str, Any]]

    @abstractmethod
    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] = ("train", "test")
    ) -> dict[str, SeriesSet]:
        """The splits asked for, and no other is read; their facts are verified."""

    @abstractmethod
    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        """Where the splits lie; nothing is read."""

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        """The settings of a recipe for a model with these attentions, one name a layer."""
        if name not in self.recipes:
            raise ValueError(unknown(f"recipe of task {self.name!r}:", name, self.recipes))
        return dict(self.recipes[name])
