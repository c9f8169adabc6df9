"""The backward kernels. Scores are made again; nothing of the forward pass is kept but qk."""

from __future__ import annotations

import triton
import triton.language as tl

from .steps import (
    features,
    features_backward,
    load_side,
    load_weights,
    product,
    scores,
    store_side,
    valid_rows,
)


@triton.jit
def score_gradients(
    rows, w, z, slope, d_scores, dtype: tl.constexpr,
    MAP: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """The scores of a tile; the gradient of their numerators (BM, BS); and that of their
    denominators (BM,). slope (BS,): the gradient of the sums of squared scores."""
    found, factor = scores(rows, w, z, dtype, MAP, PREC, CAST)
    d = d_scores.to(tl.float32) + 2.0 * found * slope[None, :]
    return found, d * factor[:, None], -tl.sum(d * found, 1) * factor


@triton.jit
def weight_gradients(
    qk, weights, sums, d_scores, d_energy, hidden, found, d_weights, d_sums, d_qk, N, stride_b,
    SIDES: tl.constexpr, HP: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr,
    MAP: tl.constexpr, MASK: tl.constexpr, TIED: tl.constexpr,
    PREC: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """The scores (B, N, SIDES, S) once more, parts (splits, B, SIDES, S, HP) of the gradient of the
    weights, (splits, B, SIDES, HP) of that of the sums, and with fixed weights d_qk."""
    split, splits = tl.program_id(0), tl.num_programs(0)
    b, side = tl.program_id(1) // SIDES, tl.program_id(1) % SIDES
    ps, ss = tl.arange(0, BP), tl.arange(0, BS)
    dtype: tl.constexpr = qk.dtype.element_ty
    w = load_weights(weights, b * stride_b + side, S, HP, BS, BP)
    slope = tl.load(d_energy + (b * SIDES + side) * S + ss, mask=ss < S, other=0.0)
    z = ps.to(tl.float32)
    if MAP != 0:
        z = tl.load(sums + (b * SIDES + side) * HP + ps, mask=ps < HP, other=0.0)
    d_w, d_z = tl.zeros((BS, BP), dtype=tl.float32), tl.zeros((BP,), dtype=tl.float32)
    for tile in range(split, tl.cdiv(N, BM), splits):
        rows_at = tile * BM + tl.arange(0, BM)
        ok = valid_rows(hidden, b, rows_at, N, MASK)
        at = (b * N + rows_at).to(tl.int64)
        u = load_side(qk, at, side, ok, SIDES, HP, BP)
        base, inverse = features(u, ok, HP, BP, MAP)
        rows = base * inverse[:, None]
        given = load_side(d_scores, at, side, ok, SIDES, S, BS)
        s, d, d_factor = score_gradients(rows, w, z, slope, given, dtype, MAP, PREC, CAST)
        store_side(found, s, at, side, rows_at < N, SIDES, S, BS)
        d_w += product(tl.trans(d), rows, dtype, PREC, CAST)
        d_z += tl.sum(rows * d_factor[:, None], 0)
        if not TIED:  # of cosine features
            d_phi = product(d, tl.trans(w), dtype, PREC, CAST)
            du = features_backward(u, rows, inverse, d_phi, MAP)
            store_side(d_qk, du, at, side, rows_at < N, SIDES, HP, BP)
    first = (split * tl.num_programs(1) + b * SIDES + side).to(tl.int64)
    there = (ss < S)[:, None] & (ps < HP)[None, :]
    tl.store(d_weights + first * (S * HP) + ss[:, None] * HP + ps[None, :], d_w, mask=there)
    if MAP != 0:
        tl.store(d_sums + first * HP + ps, d_z, mask=ps < HP)


@triton.jit
def tied_gradients(
    qk, dual, weights, sums, d_scores, d_energy, hidden, d_weights, d_sums, d_qk, d_dual, N,
    SIDES: tl.constexpr, HP: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr,
    MAP: tl.constexpr, MASK: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """The gradients of qk and of the dual variables, through the scores and through the sums (14),
    `phi h^T`, whose own gradients d_weights and d_sums are complete now."""
    tile = tl.program_id(0)
    b, side = tl.program_id(1) // SIDES, tl.program_id(1) % SIDES
    ps, ss = tl.arange(0, BP), tl.arange(0, BS)
    dtype: tl.constexpr = qk.dtype.element_ty
    rows_at = tile * BM + tl.arange(0, BM)
    ok = valid_rows(hidden, b, rows_at, N, MASK)
    at = (b * N + rows_at).to(tl.int64)
    u = load_side(qk, at, side, ok, SIDES, HP, BP)
    base, inverse = features(u, ok, HP, BP, MAP)
    rows = base * inverse[:, None]

    w = load_weights(weights, b * SIDES + side, S, HP, BS, BP)
    slope = tl.load(d_energy + (b * SIDES + side) * S + ss, mask=ss < S, other=0.0)
    z = ps.to(tl.float32)
    if MAP != 0:
        z = tl.load(sums + (b * SIDES + side) * HP + ps, mask=ps < HP, other=0.0)
    given = load_side(d_scores, at, side, ok, SIDES, S, BS)
    _, d, d_factor = score_gradients(rows, w, z, slope, given, dtype, MAP, PREC, CAST)
    d_phi = product(d, tl.trans(w), dtype, PREC, CAST)
    if MAP != 0:
        d_phi = (d_phi + d_factor[:, None] * z[None, :]) * inverse[:, None]

    d_w = load_weights(d_weights, b * SIDES + side, S, HP, BS, BP)
    h = load_side(dual, at, side, ok, SIDES, S, BS)
    d_phi += product(h, tl.trans(d_w), dtype, PREC, CAST)
    phi = rows
    if MAP != 0:
        phi = base
        d_z = tl.load(d_sums + (b * SIDES + side) * HP + ps, mask=ps < HP, other=0.0)
        d_phi += d_z[None, :]
    d_h = product(phi, d_w, dtype, PREC, CAST)
    du = features_backward(u, rows, inverse, d_phi, MAP)
    du = tl.where(ok[:, None], du, 0.0)
    store_side(d_qk, du, at, side, rows_at < N, SIDES, HP, BP)
    store_side(d_dual, d_h, at, side, rows_at < N, SIDES, S, BS)
