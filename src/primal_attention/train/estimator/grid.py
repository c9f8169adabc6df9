"""Series whose points are not equally far apart in time, brought to a regular grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tasks.series import Floats

QUANTILE = 0.25  # of the gaps between points: the step of the grid
ROUNDING = 1e-3  # of a step
LONGEST = 10**7  # points that a series may become: more is a mistake in its times
DENSEST = 4.0  # points of the grid for each point of a series, on average


@dataclass(frozen=True)
class TimeGrid:
    """Points a `step` apart, from the first time of a series on. Convolutions and random kernels
    take equal distances for granted; between its points a series lies on a line."""

    step: float

    @classmethod
    def fit(cls, times: Sequence[Floats]) -> TimeGrid:
        gaps = np.concatenate([np.diff(own) for own in times])
        if not len(gaps):
            raise ValueError("times has one point in every case; expected series of some length")
        span, points = sum(own[-1] - own[0] for own in times), sum(map(len, times))
        mean, usual = float(span / len(gaps)), float(np.quantile(gaps, QUANTILE))
        # equal gaps differ by the rounding of times alone: their mean is free of it
        usual = mean if abs(mean - usual) <= ROUNDING * mean else usual
        return cls(max(usual, float(span / (DENSEST * points))))

    def __call__(self, series: Sequence[Floats], times: Sequence[Floats]) -> list[Floats]:
        """Series (length_i, channels) at times (length_i,) as series on the grid."""
        pairs = enumerate(zip(series, times, strict=True))
        return [self._one(i, x, own) for i, (x, own) in pairs]

    def _one(self, i: int, x: Floats, times: Floats) -> Floats:
        # times are rounded: what lacks a thousandth of a step counts as a whole one
        times = times - times[0]
        if times[-1] / self.step > LONGEST:
            raise ValueError(
                f"case {i} of times lasts {times[-1]:g}, {times[-1] / self.step:.3g} steps of the "
                f"grid; expected at most {LONGEST:,}, in the unit of time of fit"
            )
        points = int(times[-1] / self.step + ROUNDING) + 1
        grid = self.step * np.arange(points)
        found = np.full((points, x.shape[1]), np.nan)
        for channel, values in enumerate(x.T):
            known = ~np.isnan(values)
            if known.any():
                found[:, channel] = np.interp(grid, times[known], values[known])
        return found


def read_times(times: Any, series: Sequence[Floats]) -> list[Floats]:
    """The times of every point of every series: (cases, timepoints), or a list of arrays."""
    if len(times) != len(series):
        raise ValueError(f"times has {len(times)} cases; expected {len(series)}, as X")
    found = []
    for i, (own, x) in enumerate(zip(times, series, strict=True)):
        known = np.asarray(own, dtype=np.float64)
        if known.shape != (len(x),):
            raise ValueError(
                f"case {i} of times has shape {known.shape}; expected ({len(x)},), one for each "
                "timepoint of X"
            )
        if not np.isfinite(known).all() or (np.diff(known) <= 0).any():
            raise ValueError(f"case {i} of times does not increase; expected increasing numbers")
        found.append(known)
    return found
