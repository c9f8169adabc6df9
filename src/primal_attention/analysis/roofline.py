"""From FLOPs and bytes to seconds on a machine whose speed was measured; pure arithmetic.

A forward of a layer is taken to need `flops / peak + bytes / bandwidth` seconds: its products and
its element-wise passes take turns. What it leaves out (exponentials, small products below the peak,
the time of a call) is what a measurement adds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cost import Cost, first_length, layer_cost, possible_lengths


@dataclass(frozen=True)
class Machine:
    """What one thread reaches: FLOPs a second in a large product, bytes a second in a copy."""

    flops: float
    bandwidth: float

    def __post_init__(self) -> None:
        for name in ("flops", "bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")

    def seconds(self, cost: Cost) -> float:
        """The predicted time of one forward."""
        return cost.flops / self.flops + cost.bytes / self.bandwidth


def predicted_crossing(
    attention: str,
    machine: Machine,
    *,
    options: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> int | None:
    """The length from which on an attention is predicted to be faster than fused softmax; None if
    it never is. ``sizes`` are those of `layer_cost`."""

    def faster(length: int) -> bool:
        own = layer_cost(attention, length, options=options, **sizes)
        return machine.seconds(own) < machine.seconds(layer_cost("softmax", length, **sizes))

    return first_length(faster, *possible_lengths(options))


def measured_crossing(
    lengths: Sequence[int], seconds: Sequence[float | None], rival: Sequence[float | None]
) -> tuple[float, float] | None:
    """Between which lengths (ascending) a curve of times falls below another for good, the first
    interpolated in the logarithms: (estimate, longest length at which it was not yet faster).

    (lengths[0], 0) if it always was, None if it is not at the end. None among the times: unknown.
    """
    known = [
        (n, math.log(a / b))
        for n, a, b in zip(lengths, seconds, rival, strict=True)
        if a is not None and b is not None
    ]
    if not known or known[-1][1] >= 0:
        return None
    slower = [i for i, (_, ratio) in enumerate(known) if ratio >= 0]
    if not slower:
        return float(known[0][0]), 0.0
    (n, above), (m, below) = known[slower[-1]], known[slower[-1] + 1]
    share = above / (above - below)
    return n * (m / n) ** share, float(n)


def fitted(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """(a, b) of ``measured = a + b * predicted``, a >= 0, with the least sum of squared relative
    errors: the fixed time of a call, and how far below the machine's speeds the rest runs."""
    if not predicted or len(predicted) != len(measured):
        raise ValueError(
            f"{len(predicted)} predicted and {len(measured)} measured times were given; expected "
            "as many of both, at least one"
        )
    u, v = 1 / np.array(measured), np.array(predicted) / np.array(measured)
    uu, uv, vv = float(u @ u), float(u @ v), float(v @ v)
    determinant = uu * vv - uv * uv
    if determinant > 1e-9 * uu * vv:
        a = float(u.sum() * vv - v.sum() * uv) / determinant
        if a > 0:
            return a, float(v.sum() * uu - u.sum() * uv) / determinant
    return 0.0, float(v.sum()) / vv
