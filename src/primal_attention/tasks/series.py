"""Labelled time series in memory: the set, its statistics, its split, its batches."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from .classification.settings import RunConfig
from .examples import Batch

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SeriesSet:
    """One labelled collection. NaN in a series is a missing value, label -1 a missing label."""

    name: str
    series: list[Floats]  # each (length_i, channels)
    labels: Integers  # (cases,), indices into classes
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError(f"{self.name} has no cases; expected at least one")
        for i, s in enumerate(self.series):
            if s.ndim != 2 or s.shape[1] != self.channels or s.size == 0:
                raise ValueError(
                    f"case {i} of {self.name} has shape {s.shape}; expected (length, channels) "
                    f"with at least one position and the channels of the first case"
                )
        if self.labels.shape != (len(self),):
            raise ValueError(
                f"{self.name} has labels of shape {self.labels.shape}; expected ({len(self)},)"
            )
        check_labels(self.name, self.labels, self.classes, missing=True)

    def __len__(self) -> int:
        return len(self.series)

    @property
    def channels(self) -> int:
        return int(self.series[0].shape[-1])

    @property
    def lengths(self) -> Integers:
        """(cases,)"""
        return np.array([len(s) for s in self.series], dtype=np.int64)

    def subset(self, indices: Sequence[int] | Integers) -> SeriesSet:
        """The cases at these indices, in their order."""
        series = [self.series[i] for i in indices]
        return SeriesSet(self.name, series, self.labels[np.asarray(indices)], self.classes)

    def fingerprint(self) -> str:
        """A hash of values, lengths, labels and classes."""
        digest = hashlib.sha256(repr((self.classes, self.channels)).encode())
        digest.update(self.labels.astype("<i8").tobytes())
        digest.update(self.lengths.astype("<i8").tobytes())
        for values in self.series:
            digest.update(np.ascontiguousarray(values, dtype="<f8").data)
        return digest.hexdigest()


def check_labels(name: str, labels: Integers, classes: Sequence[str], *, missing: bool) -> None:
    """Raise unless all labels are indices of classes, or with `missing` -1."""
    low, high = labels.min(), labels.max()
    if low < -missing or high >= len(classes):
        least = "-1 (unknown)" if missing else "0"
        raise ValueError(
            f"{name} has labels from {low} to {high}; expected {least} to {len(classes) - 1}"
        )


@dataclass(frozen=True, eq=False)
class Normaliser:
    """x -> (x - mean) / deviation for each channel, with the statistics of the training set."""

    mean: Floats  # (channels,)
    deviation: Floats  # (channels,), 1 where a channel is constant

    @classmethod
    def fit(cls, train: SeriesSet) -> Normaliser:
        """Statistics over all positions of all series; missing values do not count."""
        rows = np.concatenate(train.series)  # (total, channels)
        valid = ~np.isnan(rows)
        count = np.maximum(valid.sum(0), 1)  # a channel without any value keeps mean 0
        with np.errstate(over="ignore", invalid="ignore"):  # told below, with the channel
            mean = np.where(valid, rows, 0.0).sum(0) / count
            centred = np.where(valid, rows - mean, 0.0)
            deviation = np.sqrt(np.square(centred).sum(0) / count)
        for channel in np.flatnonzero(~np.isfinite(deviation)):
            greatest = np.nanmax(np.abs(rows[:, channel]))
            raise ValueError(
                f"channel {channel} of {train.name} has values up to {greatest:.3g} in magnitude; "
                "expected values whose squares are finite"
            )
        # exactly constant: rounding in the mean would leave a tiny deviation to divide by
        lowest = np.where(valid, rows, np.inf).min(0)
        highest = np.where(valid, rows, -np.inf).max(0)
        return cls(mean, np.where((lowest >= highest) | (deviation == 0.0), 1.0, deviation))

    def apply(self, s: SeriesSet) -> SeriesSet:
        """A normalised copy; missing values stay missing."""
        if s.channels != len(self.mean):
            raise ValueError(f"{s.name} has {s.channels} channels; expected {len(self.mean)}")
        series = [(x - self.mean) / self.deviation for x in s.series]
        return dataclasses.replace(s, series=series)

    def to_dict(self) -> dict[str, list[float]]:
        """For JSON, exact to the last bit."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], channels: int | None = None) -> Normaliser:
        """The inverse; anything that `fit` does not give is a ValueError."""
        found = stored_statistics(stored, "mean", "deviation", channels)
        if np.abs(found).max(initial=0.0) > np.finfo(np.float64).max ** 0.5:
            raise ValueError("a mean or a deviation is too great; expected finite squares")
        return cls(*found)


def stored_classes(classes: Any, count: int) -> tuple[str, ...]:
    """The names of so many classes from JSON, which may be anything; none of numbers."""
    if classes is None:
        return ()
    if not isinstance(classes, list) or len(classes) != count:
        raise ValueError(f"the classes are {classes!r}; expected {count} names")
    if wrong := [name for name in classes if not isinstance(name, str)]:
        raise ValueError(f"a class is {wrong[0]!r}; expected a text")
    return tuple(classes)


def stored_statistics(
    stored: Mapping[str, Any], place: str, spread: str, channels: int | None
) -> tuple[Floats, Floats]:
    """A place and a spread for each channel, from JSON; a ValueError says what is wrong."""
    first, second = (np.asarray(stored[key], dtype=np.float64) for key in (place, spread))
    if first.ndim != 1 or first.shape != second.shape or channels not in (None, len(first)):
        expected = "as many of both" if channels is None else f"{channels} of both"
        raise ValueError(
            f"{place} and {spread} have the shapes {first.shape} and {second.shape}; expected "
            f"{expected}"
        )
    if not np.isfinite(first).all() or not ((second > 0) & np.isfinite(second)).all():
        raise ValueError(f"{place} or {spread} is damaged; expected finite numbers, {spread} > 0")
    return first, second


class SeriesData(Dataset[Batch]):
    """A set as batches: float32, missing values zero, series cut to max_length.

    All positions lie in one tensor (total + 1, C), its last row zero: padding points there, so a
    batch is one gather. Use `collate_fn=lambda batch: batch` in a DataLoader.
    """

    def __init__(self, s: SeriesSet, *, max_length: int | None = None) -> None:
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length is {max_length}; expected an integer of at least 1")
        cut = [x[:max_length] for x in s.series]
        self.cut = sum(len(x) < len(whole) for x, whole in zip(cut, s.series, strict=True))
        lengths = np.array([len(x) for x in cut], dtype=np.int64)
        with np.errstate(over="ignore"):  # told below, with the name of the set
            cut.append(np.zeros((1, s.channels)))
            rows = np.concatenate(cut, dtype=np.float32, casting="same_kind")
        rows[np.isnan(rows)] = 0.0
        if np.isinf(rows).any():
            raise ValueError(f"{s.name} has an infinite value; expected values within float32")
        self.name, self.classes = s.name, s.classes
        self.rows = torch.from_numpy(rows)
        self.lengths = torch.from_numpy(lengths)
        self.offsets = self.lengths.cumsum(0) - self.lengths
        self.targets = torch.from_numpy(s.labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def channels(self) -> int:
        return self.rows.shape[1]

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The whole batch at once."""
        chosen = torch.as_tensor(indices)
        lengths = self.lengths[chosen].unsqueeze(1)  # (B, 1)
        positions = torch.arange(int(lengths.max()))  # (N,)
        padding = positions >= lengths  # (B, N)
        places = self.offsets[chosen].unsqueeze(1) + positions
        places.masked_fill_(padding, len(self.rows) - 1)
        inputs = self.rows[places]  # (B, N, C)
        return Batch(inputs, padding, self.targets[chosen])


@dataclass(frozen=True)
class SeriesReader:
    """Time series: normalised, longer ones cut. Where targets are numbers, `scale` is the mean and
    the deviation that are taken out of them; `columns` is what those of a table are."""

    normaliser: Normaliser | None
    shape: dict[str, int]
    classes: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    columns: Mapping[str, Any] | None = None

    @classmethod
    def fit(cls, train: SeriesSet, settings: RunConfig) -> SeriesReader:
        if settings.batching == "fixed" or settings.augment != "none" or settings.mixup:
            raise ValueError(
                f"batching is {settings.batching!r}, augment {settings.augment!r} and mixup "
                f"{settings.mixup}; expected for time series 'random' or 'bucket', 'none' and 0"
            )
        longest = int(train.lengths.max())
        most = longest if settings.max_length is None else settings.max_length
        shape = {"classes": len(train.classes), "channels": train.channels, "max_length": most}
        normaliser = Normaliser.fit(train) if settings.normalise == "channel" else None
        return cls(normaliser, shape, train.classes)

    def __call__(self, part: Any, *, training: bool = False) -> SeriesData:
        normalised = part if self.normaliser is None else self.normaliser.apply(part)
        data = SeriesData(normalised, max_length=self.shape["max_length"])
        if self.scale is not None and hasattr(part, "values"):
            mean, deviation = self.scale
            data.targets = torch.from_numpy((part.values - mean) / deviation)
        return data

    def to_dict(self) -> dict[str, Any]:
        return {
            "reads": "series",
            "shape": self.shape,
            "classes": None if self.scale is not None else list(self.classes),
            "scale": None if self.scale is None else list(self.scale),
            "normaliser": None if self.normaliser is None else self.normaliser.to_dict(),
            "columns": self.columns,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SeriesReader:
        normaliser, scale, shape = stored["normaliser"], stored["scale"], stored["shape"]
        return cls(
            None if normaliser is None else Normaliser.from_dict(normaliser, shape["channels"]),
            shape,
            stored_classes(stored["classes"], shape["classes"]),
            None if scale is None else (scale[0], scale[1]),
            stored["columns"],
        )


def stratified_split(
    labels: npt.NDArray[Any], fraction: float, seed: int
) -> tuple[Integers, Integers]:
    """Indices (kept, held out), both sorted. About `fraction` of every class is held out.

    round(fraction * cases) are held out, at least one, as far as every class can keep a case. The
    classes' shares are rounded by largest remainder; who is held out is decided by the seed alone.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction is {fraction}; expected a number between 0 and 1")
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    spare = sizes - 1
    if spare.sum() == 0:
        raise ValueError(
            f"no class has two cases among {len(labels)}; expected one that can be held out"
        )
    wanted = min(max(round(fraction * len(labels)), 1), int(spare.sum()))
    share = fraction * sizes
    held = np.minimum(np.floor(share).astype(np.int64), spare)
    while held.sum() < wanted:
        held[np.argmax(np.where(held < spare, share - held, -np.inf))] += 1
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(np.flatnonzero(group == c))[:h] for c, h in enumerate(held)]
    held_out = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def split_by_value(values: Floats, fraction: float, seed: int) -> tuple[Integers, Integers]:
    """Indices (kept, held out), of numbers: one of every few neighbours in the order of the values
    is held out, low, middle and high alike."""
    order = np.argsort(values, kind="stable")
    groups = min(max(round(fraction * len(order)), 1), max(len(order) // 2, 1))
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.arange(len(order)) * groups // len(order)
    return stratified_split(group, fraction, seed)
