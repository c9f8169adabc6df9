"""The tasks: sets for the engine from one's own cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import DataError, Task
from ..classification.settings import RunConfig
from ..images.folder import list_classes, open_listing, sizes_of
from ..images.recipes import CIFAR10, DIGITS, FOLDER
from ..images.sets import ImageSet
from ..images.task import ImageTask
from ..net import net_settings
from ..placed import PlacedTask
from ..series import Integers, SeriesReader, SeriesSet, split_by_value
from .parts import Parts
from .settings import OwnConfig
from .targets import as_number, classes_in

if TYPE_CHECKING:
    from ..objective import Objective
    from ..settings import EngineConfig

NO_TEST = "no test set was named; expected --test"


@dataclass(frozen=True, kw_only=True)
class _Own:
    """What the tasks share: settings that name the data, and the places that follow."""

    parts: Parts | None = None

    @property
    def settings(self) -> type[EngineConfig]:
        return OwnConfig

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        if self.parts is None:
            return {}
        test = {} if self.parts.test is None else {"test": self.parts.test}
        return {"train": self.parts.train, **test}

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return NO_TEST if self.parts is not None else "primal train --data FILE_OR_FOLDER"


@dataclass(frozen=True, kw_only=True)
class _OwnSeries(_Own, PlacedTask[SeriesSet]):
    """Series of one file or folder. Recipes are those for a thousand cases until it is bound."""

    recipes: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"default": net_settings(1000), "transformer": {}}
    )

    def bound(self, settings: OwnConfig) -> Any:
        parts = Parts.of(settings.where())
        default = net_settings(len(parts.read("train").cases))
        return replace(self, parts=parts, recipes={**self.recipes, "default": default})

    @property
    def own(self) -> Parts:
        if self.parts is None:
            raise DataError(f"{self.name} has no data; expected --data FILE_OR_FOLDER")
        return self.parts

    def reader(self, train: SeriesSet, settings: RunConfig) -> SeriesReader:
        columns = self.own.read("train").columns
        found = SeriesReader.fit(train, settings)
        return replace(found, columns=None if columns is None else columns.to_dict())


class OwnClasses(_OwnSeries):
    """The metric is accuracy."""

    def read(self, place: Path, split: str) -> SeriesSet:
        found = self.own.read(split)
        train = self.own.read("train")
        classes = classes_in(train.targets, str(self.own.train))
        index = {name: i for i, name in enumerate(classes)}
        for case in found.cases:
            if case.target not in index:
                raise DataError(
                    f"{place}: {case.name!r} has the class {case.target!r}; expected one of "
                    f"{', '.join(classes)}, as {self.own.train} has"
                )
        labels = np.array([index[target] for target in found.targets], dtype=np.int64)
        return SeriesSet(place.name, [case.series for case in found.cases], labels, classes)


@dataclass(frozen=True, eq=False)
class ValuedSet(SeriesSet):
    """Series with numbers; for all else they are of one class."""

    values: Any = None  # (cases,)

    def subset(self, indices: Sequence[int] | Integers) -> ValuedSet:
        chosen = np.asarray(indices)
        series = [self.series[i] for i in chosen]
        values = self.values[chosen]
        return replace(self, series=series, labels=self.labels[chosen], values=values)

    def fingerprint(self) -> str:
        """With the values."""
        import hashlib

        text = super().fingerprint().encode() + self.values.astype("<f8").tobytes()
        return hashlib.sha256(text).hexdigest()


class OwnValues(_OwnSeries):
    """The metric is R^2, the share of the variance that is explained."""

    @property
    def objective(self) -> type[Objective[Any, Any]]:
        from ..regression.objective import Regression

        return Regression

    def read(self, place: Path, split: str) -> ValuedSet:
        found = self.own.read(split)
        values = np.array([as_number(target) for target in found.targets])
        for case, value in zip(found.cases, values, strict=True):
            if np.isnan(value):
                raise DataError(
                    f"{place}: {case.name!r} has the target {case.target!r}; expected a finite "
                    f"number for {self.name}"
                )
        labels = np.zeros(len(values), dtype=np.int64)
        series = [case.series for case in found.cases]
        return ValuedSet(place.name, series, labels, ("value",), values=values)

    def hold_out(self, whole: Any, fraction: float, seed: int) -> tuple[Integers, Integers]:
        return split_by_value(whole.values, fraction, seed)

    def reader(self, train: Any, settings: RunConfig) -> SeriesReader:
        scale = float(train.values.mean()), float(train.values.std()) or 1.0
        return replace(super().reader(train, settings), scale=scale)


@dataclass(frozen=True, kw_only=True)
class OwnImages(_Own, ImageTask):
    """Images in a folder for each class; what a model sees of them follows from their size."""

    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: dict(DIGITS))
    size: int = 32
    patch: int = 4

    def bound(self, settings: OwnConfig) -> Any:
        where = settings.where()
        parts = Parts.of(where)
        listing = list_classes(parts.train)
        side = int(np.median(sizes_of(listing)))
        size = next((s for s in (8, 16, 32, 64, 128) if side < 1.5 * s), 224)
        patch = 16 if size == 224 else max(size // 8, 2)
        large = FOLDER if size == 224 else CIFAR10 if len(listing.files) >= 5000 else DIGITS
        return replace(self, parts=parts, size=size, patch=patch, recipes=large)

    def read(self, place: Path, split: str) -> ImageSet:
        found = open_listing(list_classes(place), self.size, split, name=place.name)
        if self.parts is not None and split != "train":
            known = list_classes(self.parts.train).classes
            if found.classes != known:
                raise DataError(
                    f"{place} has the classes {', '.join(found.classes)}; expected "
                    f"{', '.join(known)}, as {self.parts.train} has"
                )
        return found


def own_tasks() -> list[Task]:
    """The tasks of this folder; the data is named by the settings of a run."""
    facts = "what --data names"
    return [
        OwnClasses("own/classes", "classes of series in a file or folder of yours", facts=facts),
        OwnValues("own/values", "numbers for series in a file or folder of yours", facts=facts),
        OwnImages("own/images", "classes of images in folders of yours", facts=facts),
    ]
