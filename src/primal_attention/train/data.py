"""What a run reads: the training part, the part that chooses the epoch, and the test set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from ..tasks import get_task
from ..tasks.base import Task
from ..tasks.series import Normaliser, SeriesData, SeriesSet, stratified_split
from .config import RunConfig
from .errors import RunError


@dataclass
class RunData:
    """`train` is learned from and `selection` ("validation" or "test") chooses the epoch.

    Statistics and the greatest length come from `train` alone; longer series are cut to it.
    """

    config: RunConfig
    train: SeriesData
    selection: SeriesData
    split: str
    cut: int  # series of `selection` that were cut
    fingerprints: dict[str, str]
    normaliser: Normaliser | None = field(repr=False)

    @property
    def max_length(self) -> int:
        return self.train.longest

    @property
    def shape(self) -> dict[str, int]:
        """What a model must know of the data."""
        return {
            "classes": len(self.train.classes),
            "channels": self.train.channels,
            "max_length": self.max_length,
        }

    def read_test(self) -> tuple[SeriesData, int] | None:
        """The test set and how many of its series were cut; None where there is none."""
        if self.split == "test":
            return self.selection, self.cut
        task = get_task(self.config.task)
        if "test" in task.status(self.config.data_dir).missing:
            return None
        # with the training set, so that the task can compare the two
        test = _read(task, self.config, "train", "test")["test"]
        return _prepare(test, self.normaliser, self.max_length)


def load_data(config: RunConfig) -> RunData:
    """The data of a run. With protocol "holdout" the test set is not touched."""
    task = get_task(config.task)
    if config.protocol == "paper":
        parts = _read(task, config, "train", "test")
        train, selection, split = parts["train"], parts["test"], "test"
    else:
        parts = _read(task, config, "train")
        kept, held_out = stratified_split(
            parts["train"].labels, config.validation_fraction, config.seed
        )
        train, selection = parts["train"].subset(kept), parts["train"].subset(held_out)
        split = "validation"
    normaliser = Normaliser.fit(train) if config.normalise == "channel" else None
    longest = int(train.lengths.max())
    prepared, _ = _prepare(train, normaliser, longest)
    chosen, cut = _prepare(selection, normaliser, longest)
    fingerprints = {name: fingerprint(part) for name, part in parts.items()}
    return RunData(config, prepared, chosen, split, cut, fingerprints, normaliser)


def fingerprint(s: SeriesSet) -> str:
    """A hash of values, lengths, labels and classes."""
    digest = hashlib.sha256(repr((s.classes, s.channels)).encode())
    digest.update(s.labels.astype("<i8").tobytes())
    digest.update(s.lengths.astype("<i8").tobytes())
    for values in s.series:
        digest.update(np.ascontiguousarray(values, dtype="<f8").data)
    return digest.hexdigest()


def _read(task: Task, config: RunConfig, *splits: str) -> dict[str, SeriesSet]:
    parts = task.load(config.data_dir, splits=splits)
    for part in parts.values():
        if part.labels.min() < 0:
            raise RunError(
                f"{part.name} has {int((part.labels < 0).sum())} cases without a label; expected a "
                "label for every case"
            )
    return parts


def _prepare(
    s: SeriesSet, normaliser: Normaliser | None, max_length: int
) -> tuple[SeriesData, int]:
    cut = int((s.lengths > max_length).sum())
    normalised = s if normaliser is None else normaliser.apply(s)
    return SeriesData(normalised, max_length=max_length), cut
