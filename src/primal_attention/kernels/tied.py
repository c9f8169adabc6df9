"""Attention with tied projections, hand-written: every position mixes with every other.

The KKT conditions (14) as a parameterisation: with dual variables `h_r(x) = V_r x` and
`h_e(x) = V_e x`,

    W_e|X = c sum_j phi_k(x_j) h_r(x_j)^T        W_r|X = c sum_i phi_q(x_i) h_e(x_i)^T

so that `e` is attention along K in the primal order (equation 8), and `r` along its transpose.
Two sweeps: the first sums the projections, the second evaluates the scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import tiles as pieces
from .products import add_column_sums, add_outer, project, rows_of
from .steps import Steps, refuse_second_derivative
from .tiles import Store


def attend_tied(
    x: Tensor,
    ignore: Tensor | None,
    scale: Tensor,
    w_in: Tensor,
    b_in: Tensor | None,
    w_dual: Tensor,
    w_out: Tensor,
    b_out: Tensor,
    *,
    sides: int,
    dropout: float = 0.0,
    want_energy: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Output (B, N, d), sums of squared scores (B, 2h, s) and the projections (B, 2h, s, p).

    scale: (B,), the constant c of every sample. w_dual (2h * s, d): V_e for the h query sides,
    whose sums give W_r, then V_r for the h key sides, whose sums give W_e.
    """
    x = x.contiguous()
    tensors = (x, w_in, b_in, w_dual, w_out, b_out)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        out, energy, weights = _Tied.apply(
            x, ignore, scale, w_in, b_in, w_dual, w_out, b_out, sides, dropout, want_energy
        )
        return out, energy, weights
    # Features of a few pieces are kept for the second sweep; of more they are made again, so that
    # the memory does not grow with the length.
    keep = x.shape[0] * x.shape[1] * w_in.shape[0] <= 4 * pieces.PIECE
    steps = Steps(
        x, ignore, w_in, b_in, w_out,
        sides=sides, shared=False, dropout=dropout, keep_all=keep, keep_scores=False,
    )  # fmt: skip
    weights, _ = _sum_projections(steps, scale, w_dual, keep=False)
    have_features = keep or len(steps.pieces) == 1
    out, energy = steps.sweep(weights, b_out, want_energy, have_features=have_features)
    return out, energy, weights


def _swap(weights: Tensor) -> Tensor:
    """Exchange query and key sides: sums over keys project queries, and the reverse."""
    return weights.roll(weights.shape[1] // 2, dims=1)


def _sum_projections(
    steps: Steps, scale: Tensor, w_dual: Tensor, *, keep: bool
) -> tuple[Tensor, Store]:
    """First sweep: the projections (B, 2h, s, p), and the duals divided by the norms."""
    x = steps.x
    duals_at = steps.store(w_dual.shape[0], whole=keep)
    sums = x.new_zeros(len(x), steps.sides, steps.rank, steps.head_dim)
    for piece in steps.pieces:
        rows = steps.visible_rows(x, piece)
        qk, inverse = steps.features(piece, rows)
        duals = duals_at.at(piece, steps.groups(piece))
        project(w_dual, None, rows, out=duals)
        steps.by_side(duals).mul_(inverse.unsqueeze(2))
        sides = steps.as_batch(qk).transpose(1, 2)
        steps.weights(sums, piece).baddbmm_(steps.as_batch(duals), sides)
    return _swap(sums.mul_(scale.view(-1, 1, 1, 1))), duals_at


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ignore: Tensor | None,
        scale: Tensor,
        w_in: Tensor,
        b_in: Tensor | None,
        w_dual: Tensor,
        w_out: Tensor,
        b_out: Tensor,
        sides: int,
        dropout: float,
        want_energy: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        # Scores are cheap to make again; with the duals they would be too much to keep.
        steps = Steps(
            x, ignore, w_in, b_in, w_out,
            sides=sides, shared=False, dropout=dropout, keep_scores=False,
        )  # fmt: skip
        weights, duals = _sum_projections(steps, scale, w_dual, keep=True)
        out, energy = steps.sweep(weights, b_out, want_energy, have_features=True)
        ctx.sides, ctx.dropout = sides, dropout
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            x, ignore, scale, w_in, b_in, w_dual, w_out, weights, duals.data, *steps.buffers
        )
        return out, energy, weights

    @staticmethod
    def backward(
        ctx: Any, g: Tensor | None, g_energy: Tensor | None, g_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        x, ignore, scale, w_in, b_in, w_dual, w_out, weights, duals_data, *buffers = (
            ctx.saved_tensors
        )
        steps = Steps(
            x, ignore, w_in, b_in, w_out,
            sides=ctx.sides, shared=False, dropout=ctx.dropout, keep_scores=False, buffers=buffers,
        )  # fmt: skip
        duals_at = steps.store(w_dual.shape[0], whole=True, data=duals_data)
        g = torch.zeros_like(x) if g is None else g.contiguous()

        # Back through the scores: the projections' gradient is complete only after all pieces.
        d_weights, d_w_out = torch.zeros_like(weights), torch.zeros_like(w_out.t())
        d_b_out = w_out.new_zeros(len(w_out))
        d_scores_at = steps.store(w_out.shape[1], whole=True)
        dots_at = steps.store(steps.sides, whole=True, dtype=steps.wide)
        for piece in steps.pieces:
            g_rows = steps.visible_rows(g, piece)
            add_column_sums(g_rows, d_b_out)
            d_scores = d_scores_at.at(piece, steps.groups(piece))
            steps.score(piece, weights)
            dot = steps.emit_backward(piece, g_rows, g_energy, d_scores, d_weights, d_w_out)
            dots_at.at(piece, steps.groups(piece)).copy_(dot)
        if g_weights is not None:
            d_weights += g_weights
        d_sums = _swap(d_weights).mul_(scale.view(-1, 1, 1, 1))

        # Back through the sums: `phi h^T` gives dphi = dW h and dh = dW^T phi.
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_w_in, d_w_dual = torch.zeros_like(w_in), torch.zeros_like(w_dual)
        d_b_in = None if b_in is None else torch.zeros_like(b_in)
        d_duals_at = steps.store(w_dual.shape[0])
        for piece in steps.pieces:
            groups = steps.groups(piece)
            rows = steps.visible_rows(x, piece)
            duals, d_duals = duals_at.at(piece, groups), d_duals_at.at(piece, groups)
            sums = steps.weights(d_sums, piece)
            qk = steps.as_batch(steps.qk.at(piece, groups))
            torch.bmm(sums, qk, out=steps.as_batch(d_duals))
            dot = dots_at.at(piece, groups)
            dot += steps.dot(piece, d_duals, duals)
            d_qk = steps.along_features(piece, dot)
            batch = steps.as_batch(d_qk)
            d_scores = d_scores_at.at(piece, groups)
            w = steps.weights(weights, piece).transpose(1, 2)
            batch.baddbmm_(w, steps.as_batch(d_scores))
            batch.baddbmm_(sums.transpose(1, 2), steps.as_batch(duals))
            steps.by_side(d_duals).mul_(steps.inverse.at(piece, groups).unsqueeze(2))
            add_outer(d_qk, rows, d_w_in)
            add_outer(d_duals, rows, d_w_dual)
            if d_b_in is not None:
                d_b_in += d_qk.sum((0, 2))
            if dx is not None:
                d_rows = steps.rows_backward(piece, d_qk, dx)
                rows_of(d_duals, w_dual, d_rows, add=True)
                steps.hide(piece, d_rows)
        return (
            dx, None, None, d_w_in, d_b_in, d_w_dual, d_w_out.t(), d_b_out, None, None, None,
        )  # fmt: skip
