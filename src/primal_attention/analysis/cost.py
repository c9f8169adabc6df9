"""What an attention layer costs by length: FLOPs, bytes, memory; where it beats softmax; what fits.

Predictions from the formula in each mechanism's file, `cost`, of a layer that takes no memory: at
once for any length. Counts of products are checked against torch's FLOP counter in the tests, and
what training keeps against what autograd saves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from ..attention import AttentionInfo, attention_info, available_attentions, make_attention
from ..names import check_choice, unknown

Quantity = Literal["flops", "memory", "training_memory"]

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
LONGEST = 1 << 40
_NOT_COUNTED = {"causal", "dropout", "batch_first", "device", "dtype"}


@dataclass(frozen=True)
class Cost:
    """One layer on one batch. ``flops``: matrix products of a forward. ``training_flops``: with the
    backward pass, three times as many. ``bytes``: what a forward moves if every number that it
    makes is written and read once. ``memory``: bytes at the peak of inference; ``training_memory``:
    weights, gradients, two moments of Adam, and what is kept for the backward pass.
    ``coverage``: how many of the positions can influence another one, None where it is not known.
    """

    attention: str
    length: int
    flops: int
    training_flops: int
    bytes: int
    memory: int
    training_memory: int
    parameters: int
    coverage: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def layer_cost(
    attention: str,
    length: int,
    *,
    width: int,
    heads: int,
    rank: int = 32,
    batch_size: int = 1,
    dtype: str = "float32",
    options: Mapping[str, Any] | None = None,
) -> Cost:
    """The cost of one layer of self-attention, by name as in the registry.

    ``options`` are those of the attention that change its cost, ``{"weights": "tied"}`` or
    ``{"landmarks": 32}``, at their defaults if not given; ``{"matrix": True}`` is softmax without
    fused kernels, which forms the N x N matrix.
    """
    check_choice("dtype", dtype, DTYPES)
    sizes = {"length": length, "width": width, "heads": heads, "rank": rank}
    for name, size in (sizes | {"batch_size": batch_size}).items():
        if size < 1:
            raise ValueError(f"{name} is {size}; expected at least 1")
    if width % heads:
        raise ValueError(f"heads is {heads}; expected a divisor of width = {width}")
    info, given = attention_info(attention), dict(options or {})
    if not hasattr(info.build, "cost"):
        known = ", ".join(costed_attentions())
        raise ValueError(f"attention {attention!r} has no cost formula; expected one of {known}")
    flags = {name: given.pop(name) for name in given.keys() & _flags(info)}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{name} is {flag!r}; expected True or False")
    if "rank" in info.options:
        given.setdefault("rank", rank)
    if not info.any_length:
        given.setdefault("max_length", length)
    for name, value in given.items():
        given[name] = value = tuple(value) if isinstance(value, list) else value
        if not isinstance(value, Hashable):
            raise ValueError(f"{name} is {value!r}; expected a number, a word, a list or None")
    layer = _layer(info, width, heads, tuple(given.items()))
    flops, kept, working = layer.cost(length, batch_size, **flags)
    parameters = sum(p.numel() for p in layer.parameters())
    number, rows = DTYPES[dtype], batch_size * length * width
    return Cost(
        attention, length, flops, 3 * flops,
        bytes=number * (parameters + 2 * (kept + rows)),
        memory=number * (parameters + working),
        training_memory=number * (4 * parameters + kept + 2 * rows),
        parameters=parameters,
        coverage=layer.coverage(length) if hasattr(layer, "coverage") else None,
    )  # fmt: skip


def costed_attentions() -> tuple[str, ...]:
    """The names of the attentions that have a formula."""
    return tuple(n for n in available_attentions() if hasattr(attention_info(n).build, "cost"))


@lru_cache(maxsize=64)
def _layer(info: AttentionInfo, width: int, heads: int, options: tuple[Any, ...]) -> Any:
    """A layer without memory; its constructor checks the values of the options."""
    known = sorted((info.options.keys() | _flags(info)) - _NOT_COUNTED)
    for name, _ in options:
        if name not in known:  # it would look as if it cost nothing
            raise ValueError(unknown(f"option of the cost of {info.name}", name, known))
    return make_attention(info.name, width, heads, device="meta", **dict(options))


def _flags(info: AttentionInfo) -> set[str]:
    """What a formula knows beside the options of the layer: `matrix` of softmax."""
    formula: Any = getattr(info.build, "cost", None)
    return set(formula.__kwdefaults__ or ())


def crossing(
    attention: str,
    quantity: Quantity = "flops",
    *,
    shortest: int = 1,
    longest: int = LONGEST,
    options: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> int | None:
    """The length from which on an attention costs less than softmax; None if it never does up to
    ``longest``. ``sizes`` are those of `layer_cost`."""
    check_choice("quantity", quantity, ("flops", "memory", "training_memory"))
    matrix = {"matrix": quantity != "flops"}

    def cheaper(length: int) -> bool:
        own = layer_cost(attention, length, options=options, **sizes)
        rival = layer_cost("softmax", length, options=matrix, **sizes)
        return bool(getattr(own, quantity) < getattr(rival, quantity))

    return first_length(cheaper, *possible_lengths(options, shortest, longest))


def largest_length(
    attention: str,
    memory: int,
    *,
    training: bool = False,
    options: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> int:
    """The longest sequence whose layer fits into `memory` bytes; 0 if none does."""

    def too_large(length: int) -> bool:
        cost = layer_cost(attention, length, options=options, **sizes)
        return (cost.training_memory if training else cost.memory) > memory

    low, high = possible_lengths(options)
    first = first_length(too_large, low, high)
    return high if first is None else first - 1 if first > low else 0


def possible_lengths(
    options: Mapping[str, Any] | None, shortest: int = 1, longest: int = LONGEST
) -> tuple[int, int]:
    """The shortest and the longest; of positions that are the cells of a ``grid`` there is one."""
    grid = (options or {}).get("grid")
    return (shortest, longest) if grid is None else (math.prod(grid), math.prod(grid))


def first_length(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least number from which on something holds up to `high`; steps of a fifth in between."""
    if not holds(high):
        return None
    good = high
    while good > low:
        below = max(low, min(good * 5 // 6, good - 1))
        if not holds(below):
            low = below
            break
        good = below
    while good - low > 1:
        middle = (low + good) // 2
        if holds(middle):
            good = middle
        else:
            low = middle
    return good
