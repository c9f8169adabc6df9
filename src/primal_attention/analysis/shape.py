"""How deep and how wide for a number of parameters: the law of Levine et al., NeurIPS 2020.

"Limits to depth efficiencies of self-attention" trained decoder language models with softmax
attention of 6 to 48 layers, and fitted the width at which a model of L layers is neither too deep
nor too wide,

    d*(L) = exp(a + b L),   a = 5.039,  b = 0.0555        parameters 12 L d*^2  =>  L*, d*

A wider model of as many layers gains more from further layers, a narrower one from width. In their
theory depth is worth more than width, double-exponentially, while L < log_3 d. Here L* of the law
is rounded to whole layers, and the width is what the parameters of such layers leave, counted as
they are: attentions differ in theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..attention import attention_info
from .cost import Cost, layer_cost

OFFSET, SLOPE = 5.039, 0.0555  # a, b
FITTED_DEPTHS = (6, 48)
FITTED_FROM = 3_000_000  # parameters
FEEDFORWARD = 4  # times the width
DEEPER, WIDER, BALANCED = "deeper pays", "wider pays", "balanced"
NEAR = 0.1  # a width this near to the law's is balanced: whole layers and heads move it


@dataclass(frozen=True)
class Shape:
    """An encoder (or decoder) of pre-norm layers with a feed-forward part of 4 widths; embeddings
    and heads are not counted. `law_depth`, `law_width`: L* and d* of the law, not rounded.
    `regime`: what a model of this depth and width gains more from. `flops`: of a forward of one
    sequence of `length`, training takes three times as many. `memory`: bytes of the weights, their
    gradients and the two moments of Adam in float32. `extrapolated`: why the law was not fitted for
    this, empty where it was. `warnings`: what stands in the way of such a model."""

    attention: str
    budget: int
    parameters: int
    depth: int
    width: int
    heads: int
    rank: int | None
    law_depth: float
    law_width: float
    regime: str
    threshold: float
    length: int
    flops: int
    memory: int
    why: str
    extrapolated: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def law_width(depth: float) -> float:
    """d*(L), the width that fits a depth."""
    return math.exp(OFFSET + SLOPE * depth)


def law_depth(parameters: float) -> float:
    """L*, where 12 L d*(L)^2 is the number of parameters; by bisection."""
    low, high = 0.0, 1.0
    while _law_parameters(high) < parameters:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _law_parameters(middle) < parameters else (low, middle)
    return high


def regime(depth: float, width: float) -> str:
    """What a model gains more from, by the law: more layers, more width, or neither."""
    ratio = width / law_width(depth)
    if abs(ratio - 1.0) <= NEAR:
        return BALANCED
    return DEEPER if ratio > 1.0 else WIDER


def shape_for(
    parameters: int,
    *,
    attention: str = "softmax",
    heads: int = 8,
    rank: int = 32,
    length: int = 1024,
    classifier: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Shape:
    """Depth and width for at most so many parameters, and what they cost.

    `attention`, `heads`, `rank` and `options` are those of `layer_cost`; `classifier` says that the
    model is no language model, as those that the law was fitted on.
    """
    deep = law_depth(max(parameters, 1))
    depth = max(round(deep), 1)

    def layer(width: int) -> Cost:
        return layer_cost(attention, length, width=width, heads=heads, rank=rank, options=options)

    def count(width: int) -> int:
        return _parameters(layer(width).parameters, width, depth)

    if count(heads) > parameters:
        raise ValueError(
            f"parameters is {parameters:,}; expected at least {count(heads):,}: {depth} x "
            f"{attention} with {heads} heads of width 1"
        )
    width = heads * _greatest(lambda times: count(times * heads) <= parameters)
    own = (options or {}).get("rank", rank) if _has_rank(attention) else None
    return Shape(
        attention, parameters, count(width), depth, width, heads, own, deep, law_width(deep),
        regime(depth, width), math.log(width, 3), length,
        flops=depth * (layer(width).flops + length * 4 * FEEDFORWARD * width**2),
        memory=4 * 4 * count(width),
        why=_why(deep, depth, width, attention),
        extrapolated=tuple(_extrapolated(parameters, deep, attention, classifier)),
        warnings=tuple(_warnings(width, heads, own)),
    )  # fmt: skip


def _law_parameters(depth: float) -> float:
    return 12.0 * depth * law_width(depth) ** 2


def _parameters(attention: int, width: int, depth: int) -> int:
    """Those of an encoder of layers with such an attention: two norms and a feed-forward part each,
    and the norm after the last."""
    feedforward = 2 * FEEDFORWARD * width**2 + (FEEDFORWARD + 1) * width
    return depth * (attention + feedforward + 4 * width) + 2 * width


def _greatest(fits: Callable[[int], bool]) -> int:
    """The greatest number that fits, if all smaller ones do; 1 does."""
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _has_rank(attention: str) -> bool:
    return "rank" in attention_info(attention).options


def _why(deep: float, depth: int, width: int, attention: str) -> str:
    return (
        f"the law has {deep:.1f} layers of width {law_width(deep):.0f} for so many parameters; "
        f"{depth} layers of {attention} leave a width of {width}, where the law has "
        f"{law_width(depth):.0f} for that depth"
    )


def _extrapolated(parameters: int, deep: float, attention: str, classifier: bool) -> Iterator[str]:
    low, high = FITTED_DEPTHS
    if parameters < FITTED_FROM:
        yield f"below {FITTED_FROM // 10**6}M parameters"
    elif not low <= deep <= high:
        yield f"{deep:.1f} layers, fitted on {low} to {high}"
    if classifier:
        yield "a classifier, fitted on language models"
    if attention != "softmax":
        yield f"{attention}, fitted on softmax"


def _warnings(width: int, heads: int, rank: int | None) -> Iterator[str]:
    """A head gives out [e; r] in 2 s dimensions, so all of them reach 2 s h of the width."""
    if rank is not None and 2 * rank * heads < width:
        yield (
            f"rank {rank} in {heads} heads gives out {2 * rank * heads} numbers, fewer than the "
            f"width {width}, a bottleneck that depth does not repair; expected a rank of at least "
            f"{-(-width // (2 * heads))}"
        )
