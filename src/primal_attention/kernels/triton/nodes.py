"""Equation (9) on a GPU as nodes of the graph: with fixed weights, and with tied ones.

Shapes are those of `passes.py`. The second derivative is refused, as there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...theory.features import FeatureMap
from ..maps import Maps
from ..passes import refuse_second_derivative
from ..reference import hide, inverse_positive, unit_rows
from . import launch
from .launch import Shape
from .switch import COSINE, map_number


def attend_fixed(
    x: Tensor, ignore: Tensor | None, maps: Maps, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Output (B, N, d) and sums of squared scores (B, 2h, s), of cosine features with the weights
    (B or 1, 2h, s, p), transposed."""
    with torch.cuda.device_of(x):
        qk = F.linear(hide(x, ignore), maps.w_in, maps.b_in)
        out, energy = _Fixed.apply(qk, _as_bytes(ignore), weights, maps.w_out, maps.b_out)
    return out, energy


def attend_tied(
    x: Tensor,
    ignore: Tensor | None,
    maps: Maps,
    w_dual: Tensor,
    scale: Tensor,
    feature_map: FeatureMap,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, N, d), sums of squared scores (B, 2h, s), and the weights (14) (B, 2h, s, p).
    scale: (B,), the constant c."""
    sides = len(maps.w_in) // feature_map.head_dim
    with torch.cuda.device_of(x):
        x = hide(x, ignore)
        rows = unit_rows(x) if feature_map.unit_rows else x
        qk, dual = F.linear(rows, maps.w_in, maps.b_in), F.linear(x, w_dual)
        out, energy, weights = _Tied.apply(
            qk, dual, _as_bytes(ignore), scale.float(), maps.w_out, maps.b_out,
            sides, map_number(feature_map),
        )  # fmt: skip
    return out, energy, weights


def _as_bytes(ignore: Tensor | None) -> Tensor | None:
    return None if ignore is None else ignore.contiguous().view(torch.uint8)


def _shape(qk: Tensor, sides: int, rank: int, feature_map: int) -> Shape:
    batch, length, width = qk.shape
    half = qk.dtype != torch.float32
    return Shape(batch, length, sides, width // sides, rank, feature_map, half)


def _visible(g: Tensor, hidden: Tensor | None) -> Tensor:
    return hide(g.contiguous(), None if hidden is None else hidden.bool())


class _Fixed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qk: Tensor, hidden: Tensor | None, weights: Tensor, w_out: Tensor, b_out: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = weights.contiguous()
        shape = _shape(qk, weights.shape[1], weights.shape[2], COSINE)
        ctx.save_for_backward(qk, hidden, weights, w_out)
        return launch.output(shape, qk, weights, None, w_out, b_out, hidden)

    @staticmethod
    def backward(ctx: Any, g: Tensor, d_energy: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        qk, hidden, weights, w_out = ctx.saved_tensors
        shape = _shape(qk, weights.shape[1], weights.shape[2], COSINE)
        g = _visible(g, hidden)
        found, d_weights, _, d_qk = launch.weight_gradients(
            shape, qk, weights, None, g @ w_out, d_energy.contiguous(), hidden, tied=False
        )
        if len(weights) == 1:
            d_weights = d_weights.sum(0, keepdim=True)
        d_w_out, d_b_out = _output_gradients(g, found)
        return d_qk, None, d_weights.to(weights.dtype), d_w_out, d_b_out


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qk: Tensor,
        dual: Tensor,
        hidden: Tensor | None,
        scale: Tensor,
        w_out: Tensor,
        b_out: Tensor,
        sides: int,
        feature_map: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape = _shape(qk, sides, dual.shape[2] // sides, feature_map)
        made, sums = launch.tied_sums(shape, qk, dual, hidden)
        made = _swap(made) * scale[:, None, None, None]
        scaled, size = made, None
        if sums is not None:  # a factor of the context cancels: bring the sums to size 1
            sums = _swap(sums) * scale[:, None, None]
            size = inverse_positive(sums.amax(-1, keepdim=True))
            sums, scaled = sums * size, made * size.unsqueeze(-1)
        scaled = scaled.to(qk.dtype)
        out, energy = launch.output(shape, qk, scaled, sums, w_out, b_out, hidden)
        ctx.shape = shape
        ctx.save_for_backward(qk, dual, hidden, scale, w_out, scaled, sums, size)
        return out, energy, made

    @staticmethod
    def backward(
        ctx: Any, g: Tensor, d_energy: Tensor, d_made: Tensor
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        qk, dual, hidden, scale, w_out, scaled, sums, size = ctx.saved_tensors
        g, d_energy = _visible(g, hidden), d_energy.contiguous()
        d_scores = g @ w_out
        found, d_weights, d_sums, _ = launch.weight_gradients(
            ctx.shape, qk, scaled, sums, d_scores, d_energy, hidden, tied=True
        )
        if size is not None and d_sums is not None:
            d_weights, d_sums = d_weights * size.unsqueeze(-1), d_sums * size
            d_sums = _swap(d_sums) * scale[:, None, None]
        d_weights = _swap(d_weights + d_made) * scale[:, None, None, None]
        d_qk, d_dual = launch.tied_gradients(
            ctx.shape, qk, dual, scaled, sums, d_scores, d_energy, hidden,
            d_weights.to(qk.dtype), d_sums,
        )  # fmt: skip
        return d_qk, d_dual, None, None, *_output_gradients(g, found), None, None


def _swap(sums: Tensor) -> Tensor:
    """Exchange query and key sides: sums over keys project queries, and the reverse."""
    return sums.roll(sums.shape[1] // 2, dims=1)


def _output_gradients(g: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Of w_out (d, 2h * s) and b_out (d), from the rows g (B, N, d) and the scores."""
    return g.flatten(0, 1).t() @ found.flatten(0, 1), g.sum((0, 1))
