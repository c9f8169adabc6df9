"""What a benchmark is: data, facts about it, an objective, and the settings to train with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..names import unknown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from .classification.settings import RunConfig
    from .examples import Reader
    from .objective import Objective
    from .settings import EngineConfig


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
    """A benchmark by name. Recipes are fields of a run's configuration, by recipe name.

    A benchmark that comes with a "validation" split says so in `splits`; of another, a part of the
    training set is held out. Where the name does not say which data it is, since it is what the
    user's folder holds, `any_data` is set: then runs are told apart by where their data lies.

    A task learns classes unless it brings other `settings` and another `objective`.
    """

    splits: tuple[str, ...] = field(default=("train", "test"), kw_only=True)
    any_data: bool = field(default=False, kw_only=True)

    name: str
    description: str
    recipes: Mapping[str, Mapping[str, Any]]

    @property
    def settings(self) -> type[EngineConfig]:
        """The settings of its runs."""
        from .classification.settings import RunConfig

        return RunConfig

    @property
    def objective(self) -> type[Objective[Any, Any]]:
        """What its runs learn, and how they are judged."""
        from .classification.objective import Classification

        return Classification

    @abstractmethod
    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] = ("train", "test")
    ) -> Mapping[str, Any]:
        """The splits asked for, and no other is read; their facts are verified."""

    @abstractmethod
    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        """Where the splits lie; nothing is read."""

    def place(self, data_dir: Path | str | None = None) -> str:
        """Where the training data lies, if the name does not say which data it is; else ""."""
        return self.status(data_dir).places.get("train", "") if self.any_data else ""

    def reader(self, train: Any, settings: RunConfig) -> Reader:
        """What makes examples of the splits, learned from the training part: here of series."""
        from .series import SeriesReader

        return SeriesReader.fit(train, settings)

    def found(self, given: Mapping[str, Any]) -> tuple[str, str]:
        """The name of the task that the given settings ask for, where this one finds out which,
        and a sentence on what it found."""
        return self.name, ""

    def bound(self, settings: Any) -> Task:
        """The task with the data that the settings of a run name, where its name does not."""
        return self

    def hold_out(
        self, whole: Any, fraction: float, seed: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The cases (kept, held out) of a training set: about `fraction` of every class."""
        from .series import stratified_split

        return stratified_split(whole.labels, fraction, seed)

    def model(self, settings: RunConfig, shape: Mapping[str, int]) -> nn.Module:
        """The model of a run's settings, with random weights, for what the reader has found."""
        from ..models.build import build_model

        return build_model(settings, **shape)

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        """The settings of a recipe for a model with these attentions, one name a layer."""
        if name not in self.recipes:
            raise ValueError(unknown(f"recipe of task {self.name!r}:", name, self.recipes))
        return dict(self.recipes[name])
