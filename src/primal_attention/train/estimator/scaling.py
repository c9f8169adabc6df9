"""Channels as the networks and the frozen bank take them: gaps closed, heavy tails drawn in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tasks.series import Floats, SeriesSet, stored_statistics
from .rocket.prepare import fill_missing

HEAVY = 20.0  # kurtosis of a channel whose tails are heavy; that of a normal one is 3
SAMPLED = 2**20  # values of a channel that are looked at


def closed(x: Floats) -> Floats:
    """x (length, channels) with missing values on the line between their neighbours; those of a
    channel without any value stay missing."""
    missing = np.isnan(x)
    if not missing.any():
        return x
    x = x.copy()
    for channel in np.flatnonzero(missing.any(0) & ~missing.all(0)):
        fill_missing(x[:, channel])
    return x


def heavy_tailed(cases: SeriesSet) -> bool:
    """Whether some channel has a kurtosis above HEAVY."""
    rows = _sample(cases)
    centred = rows - np.nanmean(rows, 0)
    scale = np.nanmax(np.abs(centred), 0)
    centred /= np.where(scale > 0, scale, 1.0)  # so that no fourth power overflows
    second, fourth = np.nanmean(centred**2, 0), np.nanmean(centred**4, 0)
    return bool((fourth > HEAVY * np.maximum(second, 1e-150) ** 2).any())


@dataclass(frozen=True, eq=False)
class Squash:
    """x -> asinh((x - median) / spread) for each channel: linear near the median, a logarithm far
    from it. The spread is the distance of the quartiles, that of a normal channel being 1.35
    deviations."""

    median: Floats  # (channels,)
    spread: Floats  # (channels,)

    @classmethod
    def fit(cls, cases: SeriesSet) -> Squash:
        rows = _sample(cases)
        low, median, high = np.nanquantile(rows, [0.25, 0.5, 0.75], 0)
        deviation = np.nanstd(rows, 0)
        spread = np.where(high > low, high - low, np.where(deviation > 0, deviation, 1.0))
        return cls(np.nan_to_num(median), np.nan_to_num(spread, nan=1.0))

    def __call__(self, series: Sequence[Floats]) -> list[Floats]:
        return [np.arcsinh((x - self.median) / self.spread) for x in series]

    def to_dict(self) -> dict[str, list[float]]:
        """For JSON, exact to the last bit."""
        return {"median": self.median.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], channels: int | None = None) -> Squash:
        return cls(*stored_statistics(stored, "median", "spread", channels))


def _sample(cases: SeriesSet) -> Floats:
    """(positions, channels): every k-th position of all series; a channel without any value is
    one of zeros."""
    step = -(-int(cases.lengths.sum()) // max(SAMPLED // cases.channels, 1))
    rows = np.concatenate([x[::step] for x in cases.series])
    rows[:, np.isnan(rows).all(0)] = 0.0
    return rows
