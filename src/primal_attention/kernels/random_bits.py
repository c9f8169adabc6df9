"""Masks of dropout whose random numbers cost little on a CPU: 16 bits for each."""

from __future__ import annotations

import torch
from torch import Tensor

from ..theory.transforms import is_transformed

LEVELS = 2**16  # on a CPU, the probability of a drop is a multiple of 1 / LEVELS
TILE = 2**18  # numbers that are treated at a time


def is_eager_cpu(x: Tensor) -> bool:
    """Whether hand-written passes may serve: a CPU, no compiled graph, no function transform."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()


def keep_scale(p: float) -> float:
    """The scale of what is kept when p is rounded to a multiple of 1 / LEVELS."""
    return LEVELS / (LEVELS - _dropped_levels(p))


def draw_dropped(count: int, p: float) -> Tensor:
    """Numbers (count,) of int16 that are 1, to be dropped, with probability p (rounded), else 0.

    They come from torch's generator of the CPU, four from 64 bits.
    """
    words = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    numbers = words.view(torch.int16)[:count]  # uniform in [-2^15, 2^15)
    return torch.lt(numbers, _dropped_levels(p) - LEVELS // 2, out=numbers)


def draw_mask(count: int, p: float) -> Tensor:
    """Bytes (count,): 0 where something is to be dropped, else 1."""
    keep = torch.empty(count, dtype=torch.uint8, device="cpu")
    for mask in keep.split(TILE):
        # through int16: torch compares 16 bits with 8 several times slower
        mask.copy_(draw_dropped(len(mask), p).bitwise_xor_(1))
    return keep


def _dropped_levels(p: float) -> int:
    return min(round(p * LEVELS), LEVELS - 1)
