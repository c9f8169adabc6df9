"""Means over seeds, and how sure they are."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean_interval(
    values: Sequence[float],
) -> tuple[float, float | None, tuple[float, float] | None]:
    """Mean, sample standard deviation, and the 95 % interval of the mean by Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None, None
    from scipy.stats import t

    deviation = statistics.stdev(values)
    half = float(t.ppf(0.975, len(values) - 1)) * deviation / len(values) ** 0.5
    return mean, deviation, (mean - half, mean + half)
