"""What every kernel does to a tile of BM positions of one side (the queries or keys of one head).

Blocks are powers of two: BP holds a head's width HP, BS the rank S. What is beyond, or ignored, is
zero. `MAP` is 0 for cosine features, b for `(elu + 1)^b`; `CAST` brings products to float32, since
the interpreter has none in bfloat16.
"""

from __future__ import annotations

import triton
import triton.language as tl

TINY = tl.constexpr(1e-24)  # the square of the smallest norm of a row
LEAST = tl.constexpr(1.0842e-19)  # the smallest denominator, as in `reference.inverse_positive`


@triton.jit
def valid_rows(hidden, b, rows, N, MASK: tl.constexpr):
    """(BM,): which rows of a tile are there and not ignored."""
    ok = rows < N
    if MASK:
        ok = ok & (tl.load(hidden + b * N + rows, mask=ok, other=1) == 0)
    return ok


@triton.jit
def load_side(data, at, side, ok, SIDES: tl.constexpr, C: tl.constexpr, BC: tl.constexpr):
    """The tile (BM, BC) of one side of data (B, N, SIDES, C); at (BM,) counts positions."""
    columns = tl.arange(0, BC)
    there = ok[:, None] & (columns < C)[None, :]
    where = at[:, None] * (SIDES * C) + side * C + columns[None, :]
    return tl.load(data + where, mask=there, other=0.0)


@triton.jit
def store_side(data, tile, at, side, ok, SIDES: tl.constexpr, C: tl.constexpr, BC: tl.constexpr):
    columns = tl.arange(0, BC)
    there = ok[:, None] & (columns < C)[None, :]
    where = at[:, None] * (SIDES * C) + side * C + columns[None, :]
    tl.store(data + where, tile.to(data.dtype.element_ty), mask=there)


@triton.jit
def load_weights(
    weights, first, S: tl.constexpr, HP: tl.constexpr, BS: tl.constexpr, BP: tl.constexpr
):
    """The projections (BP, BS) of one side, of (..., S, HP)."""
    ps, ss = tl.arange(0, BP), tl.arange(0, BS)
    there = (ps < HP)[:, None] & (ss < S)[None, :]
    return tl.load(
        weights + first * (S * HP) + ss[None, :] * HP + ps[:, None], mask=there, other=0.0
    )


@triton.jit
def product(a, b, dtype: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr):
    """a b, in the type of the computation, summed in float32."""
    if CAST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(dtype), b.to(dtype), input_precision=PREC)


@triton.jit
def features(u, ok, HP: tl.constexpr, BP: tl.constexpr, MAP: tl.constexpr):
    """From u (BM, BP): phi up to a factor of each row, `base`, and that factor, `inverse` (BM,).

    The rows `base * inverse` are of size 1. They are phi itself for the cosine; for positive
    features phi is `base`, and the factor cancels in the scores.
    """
    u = u.to(tl.float32)
    if MAP == 0:
        square = tl.sum(u * u, 1)
        alive = square > TINY
        return u, tl.where(alive, 1.0 / tl.sqrt(tl.where(alive, square, 1.0)), 0.0)
    raised = tl.where(u > 0, u + 1.0, tl.exp(tl.minimum(u, 0.0)))
    there = ok[:, None] & (tl.arange(0, BP) < HP)[None, :]
    base = tl.where(there, raised * raised if MAP == 2 else raised, 0.0)
    return base, inverse_positive(tl.max(base, 1))


@triton.jit
def inverse_positive(x):
    some = x > LEAST
    return tl.where(some, 1.0 / tl.where(some, x, 1.0), 0.0)


@triton.jit
def features_backward(u, rows, inverse, d_phi, MAP: tl.constexpr):
    """du from the gradient of phi; `rows = base * inverse`."""
    u = u.to(tl.float32)
    if MAP == 0:
        along = tl.sum(d_phi * rows, 1)
        return (d_phi - along[:, None] * rows) * inverse[:, None]
    raised = tl.where(u > 0, u + 1.0, tl.exp(tl.minimum(u, 0.0)))
    slope = tl.where(u > 0, 1.0, raised)
    return d_phi * (2.0 * raised * slope if MAP == 2 else slope)


@triton.jit
def scores(
    rows, w, z, dtype: tl.constexpr, MAP: tl.constexpr, PREC: tl.constexpr, CAST: tl.constexpr
):
    """The scores (BM, BS) of a tile and what they were multiplied by, 1 / D, (BM,)."""
    found = product(rows, w, dtype, PREC, CAST)
    if MAP == 0:
        return found, tl.full((rows.shape[0],), 1.0, tl.float32)
    factor = inverse_positive(tl.sum(rows * z[None, :], 1))
    return found * factor[:, None], factor
