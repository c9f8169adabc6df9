"""The forward kernels: tied weights, and the output with the sums of J."""

from __future__ import annotations

import triton
import triton.language as tl

from .steps import features, load_side, load_weights, product, scores, valid_rows


@triton.jit
def output(
    qk, weights, sums, w_out, b_out, hidden, out, energy, N, stride_b,
    D: tl.constexpr, SIDES: tl.constexpr, HP: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
    MAP: tl.constexpr, MASK: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """A tile of BM positions and BD channels of the output (B, N, D), summed over sides, and the
    tile's part (tiles, B, SIDES, S) of the sums of squared scores.

    qk (B, N, SIDES, HP); weights (B or 1, SIDES, S, HP), stride_b sides from sample to sample;
    sums (B, SIDES, HP) of positive features; w_out (SIDES, S, D).
    """
    tile, b, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows_at = tile * BM + tl.arange(0, BM)
    ok = valid_rows(hidden, b, rows_at, N, MASK)
    at = (b * N + rows_at).to(tl.int64)
    columns, ss, ps = part * BD + tl.arange(0, BD), tl.arange(0, BS), tl.arange(0, BP)
    dtype: tl.constexpr = qk.dtype.element_ty
    total = tl.zeros((BM, BD), dtype=tl.float32)
    for side in range(SIDES):
        base, inverse = features(load_side(qk, at, side, ok, SIDES, HP, BP), ok, HP, BP, MAP)
        w = load_weights(weights, b * stride_b + side, S, HP, BS, BP)
        z = ps.to(tl.float32)
        if MAP != 0:
            z = tl.load(sums + (b * SIDES + side) * HP + ps, mask=ps < HP, other=0.0)
        found, _ = scores(base * inverse[:, None], w, z, dtype, MAP, PREC, CAST)
        if part == 0:
            where = ((tile * tl.num_programs(1) + b) * SIDES + side) * S + ss
            tl.store(energy + where, tl.sum(found * found, 0), mask=ss < S)
        there = (ss < S)[:, None] & (columns < D)[None, :]
        where = (side * S + ss[:, None]) * D + columns[None, :]
        total += product(found, tl.load(w_out + where, mask=there, other=0.0), dtype, PREC, CAST)
    total += tl.load(b_out + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
    there = (rows_at < N)[:, None] & (columns < D)[None, :]
    total = tl.where(ok[:, None], total, 0.0).to(out.dtype.element_ty)
    tl.store(out + at[:, None] * D + columns[None, :], total, mask=there)


@triton.jit
def tied_sums(
    qk, dual, hidden, weights, sums, N,
    SIDES: tl.constexpr, HP: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr,
    MAP: tl.constexpr, MASK: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """Parts (splits, B, SIDES, S, HP) of `sum_j h(x_j) phi(x_j)^T` (equation 14), and (splits, B,
    SIDES, HP) of `sum_j phi(x_j)` for positive features. dual (B, N, SIDES, S)."""
    split, splits = tl.program_id(0), tl.num_programs(0)
    b, side = tl.program_id(1) // SIDES, tl.program_id(1) % SIDES
    ps, ss = tl.arange(0, BP), tl.arange(0, BS)
    dtype: tl.constexpr = qk.dtype.element_ty
    total, z = tl.zeros((BS, BP), dtype=tl.float32), tl.zeros((BP,), dtype=tl.float32)
    for tile in range(split, tl.cdiv(N, BM), splits):
        rows_at = tile * BM + tl.arange(0, BM)
        ok = valid_rows(hidden, b, rows_at, N, MASK)
        at = (b * N + rows_at).to(tl.int64)
        base, inverse = features(load_side(qk, at, side, ok, SIDES, HP, BP), ok, HP, BP, MAP)
        phi = base * inverse[:, None] if MAP == 0 else base
        h = load_side(dual, at, side, ok, SIDES, S, BS)
        total += product(tl.trans(h), phi, dtype, PREC, CAST)
        z += tl.sum(phi, 0)
    first = (split * tl.num_programs(1) + b * SIDES + side).to(tl.int64)
    there = (ss < S)[:, None] & (ps < HP)[None, :]
    tl.store(weights + first * (S * HP) + ss[:, None] * HP + ps[None, :], total, mask=there)
    if MAP != 0:
        tl.store(sums + first * HP + ps, z, mask=ps < HP)
