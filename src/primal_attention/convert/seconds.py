"""What a conversion saves in time, on this machine: an attention as it is with torch's fused
softmax, and its replacement, forward, one sequence."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..adapters.base import HeadsSource, Source
from ..attention.heads import HeadsAttention
from ..attention.primal.rotary import RotaryPrimalAttention
from ..theory.seeds import seeded

Steps = tuple[Callable[[], object], Callable[[], object]]
ROUNDS = 3
MOST = 1e12  # FLOPs of a softmax attention that are still waited for


class Seconds(NamedTuple):
    """Of one forward; NaN where it would take too long."""

    before: float
    after: float


NOT_TIMED = Seconds(math.nan, math.nan)


@torch.no_grad()
def seconds_of(source: Source | HeadsSource, core: Any, length: int, flops: int) -> Seconds:
    """Medians of a few rounds, in each of which both take their turn. core: the new attention.
    flops: of the old one."""
    if flops > MOST:
        return NOT_TIMED
    with seeded(0):
        if isinstance(source, HeadsSource) or isinstance(core, HeadsAttention):
            steps = _between_heads(source, core, length)
        else:
            steps = _whole(source, core, length)
    device = _like(source).device
    taken: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        for step, own in zip(steps, taken, strict=True):
            found = _timed(step, device)
            if number:  # the first round warms up
                own.append(found)
    return Seconds(*map(statistics.median, taken))


def _like(source: Source | HeadsSource) -> Tensor:
    return source.like if isinstance(source, HeadsSource) else source.query.weight


def _between_heads(source: Source | HeadsSource, core: Any, length: int) -> Steps:
    """Where the module makes its queries, keys and values itself, before and after."""
    like, shape = _like(source), (3, 1, source.num_heads, length, source.head_dim)
    q, k, v = torch.randn(shape, dtype=like.dtype, device=like.device).unbind(0)
    causal = source.causal
    return (
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda: core(q, k, v),
    )


def _whole(source: Source, core: Any, length: int) -> Steps:
    """With the projections of the source."""
    like = source.query.weight
    x = torch.randn(1, length, source.embed_dim, dtype=like.dtype, device=like.device)
    value = source.key if source.value is None else source.value

    def before() -> Tensor:
        q, k, v = (
            F.linear(x, *part).unflatten(-1, (-1, source.head_dim)).transpose(1, 2)
            for part in (source.query, source.key, value)
        )
        grouped = source.groups > 1
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=source.causal, enable_gqa=grouped)
        return F.linear(heads.transpose(1, 2).flatten(2), *source.output)

    if isinstance(core, RotaryPrimalAttention):
        one = x.new_ones(1, length, source.head_dim)
        return before, lambda: core(x, rotation=(one, torch.zeros_like(one)))
    given = x if source.batch_first else x.transpose(0, 1)
    return before, lambda: core(given)


def _timed(step: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    step()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter() - start
