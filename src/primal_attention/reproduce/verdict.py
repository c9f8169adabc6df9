"""Whether a figure of the paper is reproduced, from an interval around ours.

Ours is the mean m of k seeds on a test set of n cases. Two things make it uncertain:

- the seeds: Student's t-interval of the mean, m ± t(0.975, k-1) s / sqrt(k); unknown for k = 1,
  where it counts as nothing and the line says "1 seed";
- the test set: Wilson's 95 % interval of a share m of n cases, which is narrower towards 0 and 1.

A normalised score has no test set; it is judged from two seeds on.

They are independent, so the distances from m to their ends are combined as a root of squares, below
and above on their own: low = m - sqrt((m - seeds_low)^2 + (m - wilson_low)^2), likewise high.

The printed figure p stands for everything that rounds to it, p ± r; where the paper prints the
deviation of its three seeds, r is Student's t-interval of their mean. It is

- "reproduced" if [low, high] and [p - r, p + r] overlap,
- "better" if ours is beyond it on the good side,
- "not reproduced" if ours is beyond it on the bad side.

Both figures come from the same test set, so the interval is rather too wide than too narrow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..runs.statistics import mean_interval
from .paper_tables import Figure

Verdict = Literal["reproduced", "better", "not reproduced", "not run"]
T_OF_THREE = 4.303  # Student's t(0.975, 2)
Z = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Estimate:
    """Our figure, in the unit of the table, with its 95 % interval."""

    mean: float
    low: float
    high: float
    seeds: int = 1
    deviation: float | None = None


def estimate(values: Sequence[float], cases: int | None = None, unit: float = 100.0) -> Estimate:
    """From the accuracies of the seeds, shares of `cases`, or from values that have no cases, such
    as hundredths of scores; the estimate is in percent, or another multiple of the values."""
    mean, deviation, seeds = mean_interval(values)
    seeds_low, seeds_high = seeds or (mean, mean)
    test_low, test_high = (mean, mean) if cases is None else wilson(mean, cases)
    return Estimate(
        unit * mean,
        unit * (mean - math.hypot(mean - seeds_low, mean - test_low)),
        unit * (mean + math.hypot(seeds_high - mean, test_high - mean)),
        len(values),
        None if deviation is None else unit * deviation,
    )


def average(parts: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates."""
    mean = statistics.fmean(part.mean for part in parts)
    below = math.hypot(*(part.mean - part.low for part in parts)) / len(parts)
    above = math.hypot(*(part.high - part.mean for part in parts)) / len(parts)
    return Estimate(mean, mean - below, mean + above, min(part.seeds for part in parts))


def margin(figure: Figure) -> float:
    """What a printed figure may be off by: r above."""
    if figure.deviation is None:
        return figure.rounding
    return max(figure.rounding, T_OF_THREE * figure.deviation / math.sqrt(3))


def judge(ours: Estimate, paper: float, rounding: float, better: str = "higher") -> Verdict:
    """The verdict on a printed figure, where "higher" or "lower" is better."""
    above, below = ours.low > paper + rounding, ours.high < paper - rounding
    if not above and not below:
        return "reproduced"
    return "better" if above == (better == "higher") else "not reproduced"


def wilson(share: float, cases: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of cases."""
    if cases < 1:
        raise ValueError(f"cases is {cases}; expected at least 1")
    spread = Z * math.sqrt(share * (1 - share) / cases + Z**2 / (4 * cases**2))
    centre, scale = share + Z**2 / (2 * cases), 1 + Z**2 / cases
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
