"""What each attention computes and keeps, one short formula a mechanism. Pure arithmetic.

Conventions: N positions, width d, h heads of width p = d / h, batch B. `flops` are those of the
matrix products of one forward, two a multiply-add, as torch's counter counts them; element-wise
work is not in them. `kept` are the numbers that a forward in training keeps for the way back, the
input included. `working` are the numbers alive at the peak of a forward without gradient, input
and output included. `parameters` are numbers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..names import check_choice, unknown

PIECE = 2**20  # numbers that primal layers work on at a time


@dataclass(frozen=True)
class Case:
    """One call of one layer: self-attention without padding, not causal."""

    N: int
    d: int
    h: int
    s: int = 32  # the rank of primal layers
    B: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def p(self) -> int:
        return self.d // self.h

    def get(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)


class Terms(NamedTuple):
    flops: int
    parameters: int
    kept: int
    working: int


Formula = Callable[[Case], Terms]


def softmax(c: Case) -> Terms:
    """Fused kernels do not form the N x N matrix; `matrix=True` is the case that does (masks of
    pairs, weights asked for, attention written out)."""
    flops, parameters, kept, working = _projected(c)
    flops += c.B * 4 * c.N**2 * c.d
    matrix = c.B * c.h * c.N**2 if c.get("matrix", False) else 0
    return Terms(flops, parameters, kept + 2 * matrix, working + 2 * matrix)


def primal(c: Case) -> Terms:
    kind = c.get("weights", "data")
    hs = c.h * c.s
    anchors = (c.get("anchors", None) or c.s * c.get("rank_multi", 10)) if kind == "data" else 0
    rows = c.B * c.N
    flops = rows * (4 * c.d**2 + 4 * c.s * c.d + 4 * hs * c.d)  # q and k, scores, output
    flops += 4 * c.d**2 * c.s  # W_c into the output projection
    parameters = 3 * c.d**2 + 2 * c.p * c.s + 3 * c.d + c.p + hs
    kept = rows * (c.d + 2 * c.d + 2 * c.h)  # x, q and k, their norms
    if kind == "tied":
        flops += rows * (4 * hs * c.d + 4 * c.s * c.d)  # duals, sums
        parameters += 2 * hs * c.d
        kept += rows * 2 * hs  # duals
    else:
        flops += c.B * 4 * min(anchors, c.N) * c.s * c.d
        parameters += 2 * hs * (anchors or c.p)
        kept += rows * 2 * hs  # scores
    working = 2 * rows * c.d + min(rows * (4 * c.d + 2 * hs), 2 * PIECE)
    return Terms(flops, parameters, kept, working)


def linear(c: Case) -> Terms:
    return _factored(c, c.p, sums=1)


def cosformer(c: Case) -> Terms:
    return _factored(c, 2 * c.p, sums=1)


def flow(c: Case) -> Terms:
    flops, parameters, kept, working = _factored(c, c.p, sums=7)
    return Terms(flops, parameters, kept + c.B * 2 * c.N * c.d, working)


def performer(c: Case) -> Terms:
    m = c.get("features", None) or max(1, round(c.p * math.log(c.p)))
    flops, parameters, kept, working = _factored(c, m, sums=1)
    exponents = c.B * 2 * c.N * c.h * m
    flops += c.B * 4 * c.N * m * c.d
    return Terms(flops, parameters, kept + exponents, working + exponents)


def linformer(c: Case) -> Terms:
    longest = c.get("max_length", None) or c.N
    k = c.get("projection", None) or min(256, longest)
    rows = c.B * c.N
    flops = rows * (4 * c.d**2 + 4 * k * c.d + 4 * k * c.d)  # q and output, E and F, softmax
    flops += c.B * 4 * k * c.d**2  # W_k, W_v behind E and F
    kept = rows * 3 * c.d + c.B * 6 * k * c.d
    parameters = 4 * c.d**2 + 4 * c.d + 2 * k * longest
    return Terms(flops, parameters, kept, rows * 4 * c.d + c.B * 4 * k * c.d)


def nystrom(c: Case) -> Terms:
    m, steps = c.get("landmarks", 64), c.get("iterations", 6)
    width = c.get("residual_width", 33)
    flops, parameters, kept, working = _projected(c)
    if m >= c.N:  # every position is a landmark: softmax itself
        m, steps, flops = 0, 0, flops + c.B * 4 * c.N**2 * c.d
    flops += c.B * (8 * c.N * m * c.d + 4 * m**2 * c.d + 8 * steps * c.h * m**3)
    if width is not None:  # a band of blocks of 64 rows
        flops += c.B * 2 * (-(-c.N // 64) * 64) * (63 + width) * c.d
        parameters += c.h * width
    inverse = c.B * 8 * steps * c.h * m**2
    return Terms(flops, parameters, kept + inverse + c.B * 2 * c.N * c.d, working + inverse)


def soft(c: Case) -> Terms:
    m, steps = c.get("landmarks", 49), c.get("iterations", 20)
    rows = c.B * c.N
    flops = rows * 6 * c.d**2
    if m >= c.N:  # every position is a landmark: the kernel itself
        m, steps, flops = c.N, 0, flops + c.B * 4 * c.N**2 * c.d
    else:
        flops += rows * 6 * m * c.d + c.B * (4 * m**2 * c.d + 4 * steps * c.h * m**3)
    near = rows * c.h * m
    inverse = c.B * 3 * steps * c.h * m**2
    kept = rows * 4 * c.d + 3 * near // 2 + inverse
    return Terms(flops, 3 * c.d**2 + 3 * c.d, kept, rows * 5 * c.d + near)


def reformer(c: Case) -> Terms:
    rounds, size = c.get("hashes", 4), c.get("bucket_size", 32)
    bits = min(max(c.N // size, 1).bit_length() - 1, 18)
    rows, chunks = c.B * c.N, c.B * rounds * (c.N // size + 2**bits)
    flops = rows * 6 * c.d**2
    if bits:
        columns = -(-bits // 6) * 2 ** (min(bits, 6) - 1)
        flops += rows * 2 * c.d * rounds * columns
    flops += chunks * 8 * size**2 * c.d
    slots = chunks * size
    kept = rows * 5 * c.d + slots * (7 * c.d + 2 * size * c.h)
    parameters = 3 * c.d**2 + 3 * c.d
    return Terms(flops, parameters, kept, rows * 5 * c.d + slots * (6 * c.d + 2 * size * c.h))


def longformer(c: Case) -> Terms:
    window, tokens = c.get("window", 128), min(c.get("global_tokens", 0), c.N)
    block = min(max(window // 2, 32), c.N)
    keys = min(block - 1 + window, c.N) + tokens
    queries = -(-c.N // block) * block
    flops, parameters, kept, working = _projected(c)
    flops += c.B * (4 * queries * keys * c.d + 4 * tokens * c.N * c.d)
    gathered = c.B * (2 * (queries // block) * keys * c.d + 2 * queries * c.d)
    return Terms(flops, parameters, kept + gathered, working + gathered)


def yoso(c: Case) -> Terms:
    flops, parameters, kept, working = _projected(c)
    block = min(c.B * c.h * c.N**2, max(2**20, 32 * c.B * c.h * c.N))
    flops += c.B * 4 * c.N**2 * c.d
    return Terms(flops, parameters, kept + c.B * 3 * c.N * c.d, working + 4 * block)


def none(c: Case) -> Terms:
    rows = c.B * c.N
    return Terms(rows * 4 * c.d**2, 2 * c.d**2 + 2 * c.d, rows * 2 * c.d, rows * 3 * c.d)


FORMULAS: dict[str, Formula] = {
    "softmax": softmax,
    "primal": primal,
    "linear": linear,
    "performer": performer,
    "linformer": linformer,
    "nystrom": nystrom,
    "reformer": reformer,
    "longformer": longformer,
    "cosformer": cosformer,
    "flow": flow,
    "yoso": yoso,
    "soft": soft,
    "none": none,
}

# the options that change a formula; all others would be dropped silently
OPTIONS: dict[str, tuple[str, ...]] = {
    "softmax": ("matrix",),
    "primal": ("weights", "anchors", "rank_multi"),
    "performer": ("features",),
    "linformer": ("max_length", "projection"),
    "nystrom": ("landmarks", "iterations", "residual_width"),
    "reformer": ("hashes", "bucket_size"),
    "longformer": ("window", "global_tokens"),
    "soft": ("landmarks", "iterations"),
}
_MAY_BE_NONE = ("anchors", "features", "max_length", "projection", "residual_width")
_MAY_BE_ZERO = ("global_tokens",)


def check_options(attention: str, options: Mapping[str, Any]) -> None:
    """Raise unless the formula of an attention knows all options and their values."""
    known = OPTIONS.get(attention, ())
    for name, value in options.items():
        if not known:
            raise ValueError(f"the cost of {attention} was given {name!r}; expected no options")
        if name not in known:
            raise ValueError(unknown(f"option of the cost of {attention}", name, known))
        if name == "weights":
            check_choice(name, value, ("data", "free", "tied"))
        elif name == "matrix":
            if not isinstance(value, bool):
                raise ValueError(f"matrix is {value!r}; expected True or False")
        elif value is not None or name not in _MAY_BE_NONE:
            least = 0 if name in _MAY_BE_ZERO else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; expected a whole number, {least} or more")


def _projected(c: Case) -> Terms:
    """Projections to q, k, v and the output: what the mechanisms with values share."""
    rows = c.B * c.N
    return Terms(rows * 8 * c.d**2, 4 * c.d**2 + 4 * c.d, rows * (5 * c.d + c.h), rows * 6 * c.d)


def _factored(c: Case, m: int, sums: int) -> Terms:
    """``left (right^T v)`` with m features a head, and the `sums` over positions that normalise.

    Values and heads are not formed (``factored.py``) where that is the cheaper order.
    """
    flops, parameters, kept, working = _projected(c)
    rows, wide = c.B * c.N, c.h * m
    if wide * (c.N + c.p) < (c.d + m + 64) * c.N:
        flops = rows * (4 * c.d**2 + 4 * wide * c.d) + c.B * 4 * wide * c.p * c.d
        kept, working = rows * c.d, rows * 2 * c.d
    else:
        flops += rows * 4 * m * c.d
    flops += sums * rows * 2 * wide * c.h
    features = rows * (3 * wide + 3 * c.h)
    return Terms(flops, parameters, kept + features, working + features)
