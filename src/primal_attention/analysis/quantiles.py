"""How far the stated distribution of a number is true, by the chance that it gave to a smaller one.

u_i = P(number <= what came, as stated for case i)          uniform where the chances are right
error = mean over q of |share of u below q - q|             0 where they are, at most about 1/2
within = share of u in (0.1, 0.9]                           0.8 where they are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .calibration import Figure
from .stated import Floats, draws, interval

BINS = 20  # of the histogram
MIDDLE = (0.1, 0.9)


@dataclass(frozen=True)
class Quantiles:
    """`pit`: shares of the cases by their chance u, in BINS equal bins; figures with intervals."""

    cases: int
    error: Figure
    within: Figure
    pit: tuple[float, ...]

    def __str__(self) -> str:
        """A sentence."""
        sure = self.within.low > 0.8 or self.within.high < 0.8
        wide = "too wide" if self.within.value > 0.8 else "too narrow"
        verdict = f"so its intervals are {wide}" if sure else "which 80 % may be"
        return (
            f"{100 * self.within.value:.1f} % of the gaps lie in the middle 80 % of what was "
            f"expected ({100 * self.within.low:.1f} to {100 * self.within.high:.1f}), {verdict}; "
            f"quantiles are off by {self.error.value:.3f} on average"
        )

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        return {
            "cases": self.cases,
            "error": vars(self.error),
            "within": vars(self.within),
            "pit": list(self.pit),
        }


def measure_chances(
    members: Sequence[npt.ArrayLike],
    *,
    groups: npt.ArrayLike | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Quantiles:
    """Of chances u (cases,) in [0, 1], one array for each member, such as seeds; their figures are
    means. `groups` as in `calibration.measure`."""
    found = [np.asarray(one, dtype=np.float64) for one in members]
    for one in found:
        if one.ndim != 1 or not len(one) or not ((one >= 0) & (one <= 1)).all():
            raise ValueError(f"chances have shape {one.shape}; expected (cases,), within 0 and 1")
    rows = [
        np.mean([_figures(one[chosen]) for one in found], 0)
        for chosen in draws(len(found[0]), resamples, seed, groups)
    ]
    error, within = np.array(rows).T
    return Quantiles(
        len(found[0]),
        Figure(float(error[0]), *interval(error)),
        Figure(float(within[0]), *interval(within)),
        tuple(np.mean([shares(one) for one in found], 0).tolist()),
    )


def shares(chances: Floats) -> Floats:
    """(BINS,): of chances u (cases,), all equal where they are right."""
    return np.histogram(np.clip(chances, 0.0, 1.0), bins=BINS, range=(0.0, 1.0))[0] / len(chances)


def _figures(chances: Floats) -> tuple[float, float]:
    below = np.cumsum(shares(chances))
    error = float(np.abs(below - np.arange(1, BINS + 1) / BINS).mean())
    return error, float(((chances > MIDDLE[0]) & (chances <= MIDDLE[1])).mean())
