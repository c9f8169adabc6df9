"""Inference folded down to the features: `out = A phi_q + B phi_k + c`.

With fixed projections only linear maps lead from phi to the output. Multiplied once
(a call, or for good by `fold_`), two products and a normalisation a position are left. Here the
features themselves are normalised, and positions come first: there are no products per head left
that would want another layout.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..theory.features import SMALLEST_NORM
from .tiles import cut


def features_are_cheaper(rank: int, head_dim: int, width: int) -> bool:
    """Whether `A phi_q + B phi_k` (p d products a side and position) beats going through the s
    scores (s p + s d). Products per head run at about half speed, so theirs count twice."""
    return head_dim * width <= rank * (2 * head_dim + width)


def fold_weights(w_out: Tensor, projections: Tensor) -> Tensor:
    """[A, B] (B or 1, d, 2h * p) of w_out (d, 2h * s) and projections (B or 1, z, h, s, p)."""
    by_side = w_out.unflatten(1, projections.shape[1:4])  # (d, z, h, s)
    return torch.einsum("ozhs,bzhsm->bozhm", by_side, projections).flatten(2)


@torch.no_grad()
def attend_folded(
    x: Tensor,
    ignore: Tensor | None,
    w_in: Tensor,
    b_in: Tensor | None,
    w_out: Tensor,
    b_out: Tensor,
    *,
    sides: int,
) -> Tensor:
    """x (B, N, d), ignore (B, N) or None, w_in (2d, d), w_out (B or 1, d, 2d): output (B, N, d)."""
    x = x.contiguous()
    out = torch.empty_like(x)
    tiles = list(cut(x, w_in.shape[0]))
    work = x.new_empty(max((t.positions for t in tiles), default=0), w_in.shape[0])
    for tile in tiles:
        hidden = None if ignore is None else tile.of(ignore).reshape(-1, 1)
        rows = tile.of(x).view(-1, x.shape[-1])
        rows = rows if hidden is None else rows.masked_fill(hidden, 0.0)
        features = work[: len(rows)]
        _linear(rows, w_in, b_in, features)
        heads = features.view(len(rows), sides, -1)
        norms = torch.linalg.vector_norm(heads, dim=-1, keepdim=True)
        # A zero row becomes an infinite norm. So does NaN, which the features still carry.
        heads.div_(functional.threshold(norms, SMALLEST_NORM, torch.inf, inplace=True))
        target = tile.of(out).view(-1, x.shape[-1])
        if len(w_out) == 1 or tile.samples == 1:
            _linear(features, w_out[0 if len(w_out) == 1 else tile.first], b_out, target)
        else:
            by_sample = features.view(tile.samples, -1, features.shape[-1])
            maps = w_out[tile.first : tile.last].transpose(1, 2)
            torch.baddbmm(b_out, by_sample, maps, out=tile.of(out))
        if hidden is not None:
            target.masked_fill_(hidden, 0.0)
    return out


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)
