"""Dropout whose random numbers cost little on a CPU.

There `nn.Dropout` draws every number by itself and keeps a mask as large as its input, which takes
up to a third of a Transformer's training step. Here a number costs 16 random bits, its mask is one
byte, and all work is done piece by piece in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 2**16  # on a CPU, the probability of a drop is a multiple of 1 / LEVELS
PIECE = 2**18  # numbers that are treated at a time


class Dropout(nn.Module):
    """In training mode, zero every number with probability p and scale the others by 1 / (1 - p).

    On a CPU p is rounded to a multiple of 2^-16 and the scale is that of the rounded p, so that the
    expectation is exact. Elsewhere, and in compiled graphs, it is torch's own dropout.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout is {p}; expected a number in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        if not is_eager_cpu(x):
            return F.dropout(x, self.p)
        keep, scale = draw_mask(x.numel(), self.p), keep_scale(self.p)
        dropped: Tensor = _Masked.apply(x, keep, scale)
        return dropped

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass."""
        alike = residual.shape == x.shape and residual.dtype == x.dtype
        if not (self.training and self.p and alike and is_eager_cpu(x)):
            apart: Tensor = residual + self(x)
            return apart
        keep, scale = draw_mask(x.numel(), self.p), keep_scale(self.p)
        total: Tensor = _AddMasked.apply(residual, x, keep, scale)
        return total

    def extra_repr(self) -> str:
        return f"p={self.p}"


def is_eager_cpu(x: Tensor) -> bool:
    """Whether hand-written passes may serve: a CPU, no compiled graph, no function transform."""
    return (
        x.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


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
    for mask in keep.split(PIECE):
        # through int16: torch compares 16 bits with 8 several times slower
        mask.copy_(draw_dropped(len(mask), p).bitwise_xor_(1))
    return keep


def _dropped_levels(p: float) -> int:
    return min(round(p * LEVELS), LEVELS - 1)


class _Masked(torch.autograd.Function):
    """scale * keep * x, linear in x and its own derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(keep)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part, rows, mask in _pieces(out, x, keep):
            torch.mul(rows, mask, out=part).mul_(scale)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _Masked.apply(g, keep, ctx.scale), None, None


class _AddMasked(torch.autograd.Function):
    """residual + scale * keep * x."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(keep)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part, before, rows, mask in _pieces(out, residual, x, keep):
            torch.addcmul(before, rows, mask.to(rows.dtype), value=scale, out=part)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return g, _Masked.apply(g, keep, ctx.scale), None, None


def _pieces(*tensors: Tensor) -> zip[tuple[Tensor, ...]]:
    return zip(*(tensor.reshape(-1).split(PIECE) for tensor in tensors), strict=True)
