"""Attention with given projections, hand-written: `data` and `free` weights, cross-attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .products import add_column_sums, add_outer
from .steps import Steps, refuse_second_derivative


def attend_given(
    x: Tensor,
    ignore: Tensor | None,
    w_in: Tensor,
    b_in: Tensor | None,
    weights: Tensor,
    w_out: Tensor,
    b_out: Tensor,
    *,
    sides: int,
    dropout: float = 0.0,
    want_energy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Output (B, N, d) and sums of squared scores (B, 2h, s), equation (9).

    weights: (B, 2h, s, p), or (1, 2h, s, p) when all samples share them: W_e|X^T for the h query
    sides, W_r|X^T for the h key sides. See `steps.Steps` for the other arguments.
    """
    x, weights = x.contiguous(), weights.contiguous()
    tensors = (x, w_in, b_in, weights, w_out, b_out)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        out, energy = _Given.apply(
            x, ignore, w_in, b_in, weights, w_out, b_out, sides, dropout, want_energy
        )
        return out, energy
    steps = Steps(
        x, ignore, w_in, b_in, w_out,
        sides=sides, shared=len(weights) == 1, dropout=dropout, keep_all=False,
    )  # fmt: skip
    return steps.sweep(weights, b_out, want_energy)


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ignore: Tensor | None,
        w_in: Tensor,
        b_in: Tensor | None,
        weights: Tensor,
        w_out: Tensor,
        b_out: Tensor,
        sides: int,
        dropout: float,
        want_energy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        shared = len(weights) == 1
        steps = Steps(x, ignore, w_in, b_in, w_out, sides=sides, shared=shared, dropout=dropout)
        out, energy = steps.sweep(weights, b_out, want_energy)
        ctx.dropout = dropout
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, ignore, w_in, b_in, weights, w_out, *steps.buffers)
        return out, energy

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_energy: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        x, ignore, w_in, b_in, weights, w_out, *buffers = ctx.saved_tensors
        shared, sides = weights.shape[0] == 1, weights.shape[1]
        steps = Steps(
            x, ignore, w_in, b_in, w_out,
            sides=sides, shared=shared, dropout=ctx.dropout, buffers=buffers,
        )  # fmt: skip
        g = torch.zeros_like(x) if g is None else g.contiguous()
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_w_in, d_weights, d_w_out = map(torch.zeros_like, (w_in, weights, w_out.t()))
        d_b_in = None if b_in is None else torch.zeros_like(b_in)
        d_b_out = w_out.new_zeros(len(w_out))
        d_scores_at = steps.store(w_out.shape[1])
        for piece in steps.pieces:
            d_scores = d_scores_at.at(piece, steps.groups(piece))
            g_rows = steps.visible_rows(g, piece)
            add_column_sums(g_rows, d_b_out)
            dot = steps.emit_backward(piece, g_rows, g_energy, d_scores, d_weights, d_w_out)
            d_qk = steps.along_features(piece, dot)
            w = steps.weights(weights, piece).transpose(1, 2)
            steps.as_batch(d_qk).baddbmm_(w, steps.as_batch(d_scores))
            add_outer(d_qk, steps.visible_rows(x, piece), d_w_in)
            if d_b_in is not None:
                d_b_in += d_qk.sum((0, 2))
            if dx is not None:
                steps.hide(piece, steps.rows_backward(piece, d_qk, dx))
        return dx, None, d_w_in, d_b_in, d_weights, d_w_out.t(), d_b_out, None, None, None
