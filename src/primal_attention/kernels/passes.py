"""Primal attention with cosine features, hand-written forward and backward: with fixed projections
(data-dependent and free weights, cross-attention), and with tied ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import tiles
from .tiles import Buffer, TiledPass, add_column_sums, add_outer, project, rows_of


def attend_fixed(
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
    sides, W_r|X^T for the h key sides. See `tiles.TiledPass` for the other arguments.
    """
    x, weights = x.contiguous(), weights.contiguous()
    if _needs_gradient(x, w_in, b_in, weights, w_out, b_out):
        out, energy = _Fixed.apply(
            x, ignore, w_in, b_in, weights, w_out, b_out, sides, dropout, want_energy
        )
        return out, energy
    tiled = TiledPass(
        x, ignore, w_in, b_in, w_out,
        sides=sides, shared=len(weights) == 1, dropout=dropout, keep_all=False,
    )  # fmt: skip
    return tiled.sweep(weights, b_out, want_energy)


class _Fixed(torch.autograd.Function):
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
        tiled = TiledPass(x, ignore, w_in, b_in, w_out, sides=sides, shared=shared, dropout=dropout)
        out, energy = tiled.sweep(weights, b_out, want_energy)
        ctx.dropout = dropout
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, ignore, w_in, b_in, weights, w_out, *tiled.buffers)
        return out, energy

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_energy: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        x, ignore, w_in, b_in, weights, w_out, *buffers = ctx.saved_tensors
        shared, sides = weights.shape[0] == 1, weights.shape[1]
        tiled = TiledPass(
            x, ignore, w_in, b_in, w_out,
            sides=sides, shared=shared, dropout=ctx.dropout, buffers=buffers,
        )  # fmt: skip
        g = torch.zeros_like(x) if g is None else g.contiguous()
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_w_in, d_weights, d_w_out = map(torch.zeros_like, (w_in, weights, w_out.t()))
        d_b_in = None if b_in is None else torch.zeros_like(b_in)
        d_b_out = w_out.new_zeros(len(w_out))
        d_scores_at = tiled.buffer(w_out.shape[1])
        for tile in tiled.tiles:
            d_scores = d_scores_at.at(tile, tiled.groups(tile))
            g_rows = tiled.visible_rows(g, tile)
            add_column_sums(g_rows, d_b_out)
            dot = tiled.emit_backward(tile, g_rows, g_energy, d_scores, d_weights, d_w_out)
            d_qk = tiled.along_features(tile, dot)
            w = tiled.weights(weights, tile).transpose(1, 2)
            tiled.as_batch(d_qk).baddbmm_(w, tiled.as_batch(d_scores))
            add_outer(d_qk, tiled.visible_rows(x, tile), d_w_in)
            if d_b_in is not None:
                d_b_in += d_qk.sum((0, 2))
            if dx is not None:
                d_rows = tiled.rows(dx, tile)
                rows_of(d_qk, tiled.w_in, d_rows)
                tiled.hide(tile, d_rows)
        return dx, None, d_w_in, d_b_in, d_weights, d_w_out.t(), d_b_out, None, None, None


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
    """Output (B, N, d), sums of squared scores (B, 2h, s) and the projections (B, 2h, s, p), with
    the KKT conditions (14) as a parameterisation: with dual variables `h_r(x) = V_r x` and
    `h_e(x) = V_e x`,

        W_e|X = c sum_j phi_k(x_j) h_r(x_j)^T        W_r|X = c sum_i phi_q(x_i) h_e(x_i)^T

    so that `e` is attention along K in the primal order (equation 8), and `r` along its transpose.
    Two sweeps: the first sums the projections, the second evaluates the scores.

    scale: (B,), the constant c of every sample. w_dual (2h * s, d): V_e for the h query sides,
    whose sums give W_r, then V_r for the h key sides, whose sums give W_e.
    """
    x = x.contiguous()
    if _needs_gradient(x, w_in, b_in, w_dual, w_out, b_out):
        out, energy, weights = _Tied.apply(
            x, ignore, scale, w_in, b_in, w_dual, w_out, b_out, sides, dropout, want_energy
        )
        return out, energy, weights
    # Features of a few tiles are kept for the second sweep; of more they are made again, so that
    # the memory does not grow with the length.
    keep = x.shape[0] * x.shape[1] * w_in.shape[0] <= 4 * tiles.TILE
    tiled = TiledPass(
        x, ignore, w_in, b_in, w_out,
        sides=sides, shared=False, dropout=dropout, keep_all=keep, keep_scores=False,
    )  # fmt: skip
    weights, _ = _sum_projections(tiled, scale, w_dual, keep=False)
    have_features = keep or len(tiled.tiles) == 1
    out, energy = tiled.sweep(weights, b_out, want_energy, have_features=have_features)
    return out, energy, weights


def _swap(weights: Tensor) -> Tensor:
    """Exchange query and key sides: sums over keys project queries, and the reverse."""
    return weights.roll(weights.shape[1] // 2, dims=1)


def _sum_projections(
    tiled: TiledPass, scale: Tensor, w_dual: Tensor, *, keep: bool
) -> tuple[Tensor, Buffer]:
    """First sweep: the projections (B, 2h, s, p), and the duals divided by the norms."""
    x = tiled.x
    duals_at = tiled.buffer(w_dual.shape[0], whole=keep)
    sums = x.new_zeros(len(x), tiled.sides, tiled.rank, tiled.head_dim)
    for tile in tiled.tiles:
        rows = tiled.visible_rows(x, tile)
        qk, inverse = tiled.features(tile, rows)
        duals = duals_at.at(tile, tiled.groups(tile))
        project(w_dual, None, rows, out=duals)
        tiled.by_side(duals).mul_(inverse.unsqueeze(2))
        sides = tiled.as_batch(qk).transpose(1, 2)
        tiled.weights(sums, tile).baddbmm_(tiled.as_batch(duals), sides)
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
        tiled = TiledPass(
            x, ignore, w_in, b_in, w_out,
            sides=sides, shared=False, dropout=dropout, keep_scores=False,
        )  # fmt: skip
        weights, duals = _sum_projections(tiled, scale, w_dual, keep=True)
        out, energy = tiled.sweep(weights, b_out, want_energy, have_features=True)
        ctx.sides, ctx.dropout = sides, dropout
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            x, ignore, scale, w_in, b_in, w_dual, w_out, weights, duals.data, *tiled.buffers
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
        tiled = TiledPass(
            x, ignore, w_in, b_in, w_out,
            sides=ctx.sides, shared=False, dropout=ctx.dropout, keep_scores=False, buffers=buffers,
        )  # fmt: skip
        duals_at = tiled.buffer(w_dual.shape[0], whole=True, data=duals_data)
        g = torch.zeros_like(x) if g is None else g.contiguous()

        # Back through the scores: the projections' gradient is complete only after all tiles.
        d_weights, d_w_out = torch.zeros_like(weights), torch.zeros_like(w_out.t())
        d_b_out = w_out.new_zeros(len(w_out))
        d_scores_at = tiled.buffer(w_out.shape[1], whole=True)
        dots_at = tiled.buffer(tiled.sides, whole=True, dtype=tiled.wide)
        for tile in tiled.tiles:
            g_rows = tiled.visible_rows(g, tile)
            add_column_sums(g_rows, d_b_out)
            d_scores = d_scores_at.at(tile, tiled.groups(tile))
            tiled.score(tile, weights)
            dot = tiled.emit_backward(tile, g_rows, g_energy, d_scores, d_weights, d_w_out)
            dots_at.at(tile, tiled.groups(tile)).copy_(dot)
        if g_weights is not None:
            d_weights += g_weights
        d_sums = _swap(d_weights).mul_(scale.view(-1, 1, 1, 1))

        # Back through the sums: `phi h^T` gives dphi = dW h and dh = dW^T phi.
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_w_in, d_w_dual = torch.zeros_like(w_in), torch.zeros_like(w_dual)
        d_b_in = None if b_in is None else torch.zeros_like(b_in)
        d_duals_at = tiled.buffer(w_dual.shape[0])
        for tile in tiled.tiles:
            groups = tiled.groups(tile)
            rows = tiled.visible_rows(x, tile)
            duals, d_duals = duals_at.at(tile, groups), d_duals_at.at(tile, groups)
            sums = tiled.weights(d_sums, tile)
            torch.bmm(sums, tiled.as_batch(tiled.qk.at(tile, groups)), out=tiled.as_batch(d_duals))
            dot = dots_at.at(tile, groups)
            dot += tiled.dot(tile, d_duals, duals)
            d_qk = tiled.along_features(tile, dot)
            batch = tiled.as_batch(d_qk)
            w = tiled.weights(weights, tile).transpose(1, 2)
            batch.baddbmm_(w, tiled.as_batch(d_scores_at.at(tile, groups)))
            batch.baddbmm_(sums.transpose(1, 2), tiled.as_batch(duals))
            tiled.by_side(d_duals).mul_(tiled.inverse.at(tile, groups).unsqueeze(2))
            add_outer(d_qk, rows, d_w_in)
            add_outer(d_duals, rows, d_w_dual)
            if d_b_in is not None:
                d_b_in += d_qk.sum((0, 2))
            if dx is not None:
                d_rows = tiled.rows(dx, tile)
                rows_of(d_qk, tiled.w_in, d_rows)
                rows_of(d_duals, w_dual, d_rows, add=True)
                tiled.hide(tile, d_rows)
        return (
            dx, None, None, d_w_in, d_b_in, d_w_dual, d_w_out.t(), d_b_out, None, None, None,
        )  # fmt: skip


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def refuse_second_derivative() -> None:
    """A backward pass under create_graph would return constants: silently wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the hand-written backward pass of Primal-Attention has no derivative itself "
            "(create_graph=True was asked for); set layer.fast = False for second derivatives"
        )
