"""Growth with the length: the exponent of a power law, and what it foretells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Forecast(NamedTuple):
    """A value at a length that was not measured, and the exponent that it was foretold with."""

    value: float
    exponent: float


def growth_exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """The least-squares exponent a of values ~ lengths^a over the upper half of the lengths, at
    least two of them; None if there are fewer, or a value is not positive."""
    count = max(2, (len(lengths) + 1) // 2)
    points = sorted(zip(lengths, values, strict=True))[-count:]
    if len(points) < 2 or any(value <= 0 for _, value in points):
        return None
    x, y = (list(map(math.log, column)) for column in zip(*points, strict=True))
    return statistics.linear_regression(x, y).slope


def forecast(known: Mapping[int, float], length: int) -> Forecast | None:
    """The value at a length beyond the known ones, {length: value}: the last known one times the
    growth at the observed exponent, taken to be linear as long as there is one value only."""
    if not known:
        return None
    last = max(known)
    exponent = growth_exponent(list(known), list(known.values()))
    exponent = 1.0 if exponent is None else max(exponent, 0.0)
    return Forecast(known[last] * (length / last) ** exponent, exponent)
