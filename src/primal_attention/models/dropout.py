"""Dropout whose random numbers cost little on a CPU.

There `nn.Dropout` draws every number by itself and keeps a mask as large as its input, which takes
up to a third of a Transformer's training step. Here a number costs 16 random bits, its mask is one
byte, and all work is done tile by tile in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.random_bits import TILE, draw_mask, is_eager_cpu, keep_scale


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
        dropped: Tensor = _Masked.apply(None, x, keep, scale)
        return dropped

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass."""
        alike = residual.shape == x.shape and residual.dtype == x.dtype
        if not (self.training and self.p and alike and is_eager_cpu(x)):
            apart: Tensor = residual + self(x)
            return apart
        keep, scale = draw_mask(x.numel(), self.p), keep_scale(self.p)
        total: Tensor = _Masked.apply(residual, x, keep, scale)
        return total

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _Masked(torch.autograd.Function):
    """scale * keep * x, linear in x and its own derivative; plus the residual if there is one."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(keep)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if residual is None:
            for part, rows, mask in _tiles(out, x, keep):
                torch.mul(rows, mask, out=part).mul_(scale)
            return out
        for part, before, rows, mask in _tiles(out, residual, x, keep):
            torch.addcmul(before, rows, mask.to(rows.dtype), value=scale, out=part)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        before = g if ctx.needs_input_grad[0] else None
        return before, _Masked.apply(None, g, keep, ctx.scale), None, None


def _tiles(*tensors: Tensor) -> zip[tuple[Tensor, ...]]:
    return zip(*(tensor.reshape(-1).split(TILE) for tensor in tensors), strict=True)
