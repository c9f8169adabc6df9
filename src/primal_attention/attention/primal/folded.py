"""Inference of layers folded down to their features: `out = A phi_q + B phi_k + c`.

Two products and a normalisation a position. Here the features themselves are normalised, and
positions come first: there are no products per head left that would want another layout.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...ksvd.features import SMALLEST_NORM
from .pieces import pieces
from .steps import product


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
    """x (B, N, d), ignore (B, N) or None, w_in (2d, d), w_out (d, 2d): output (B, N, d)."""
    x = x.contiguous()
    out = torch.empty_like(x)
    cuts = list(pieces(x, w_in.shape[0]))
    work = x.new_empty(max((p.positions for p in cuts), default=0), w_in.shape[0])
    for piece in cuts:
        hidden = None if ignore is None else piece.of(ignore).reshape(-1, 1)
        rows = piece.of(x).view(-1, x.shape[-1])
        rows = rows if hidden is None else rows.masked_fill(hidden, 0.0)
        features = work[: len(rows)].unsqueeze(0)
        product(rows.unsqueeze(0), w_in.t(), out=features, bias=b_in)
        heads = features.view(len(rows), sides, -1)
        norms = torch.linalg.vector_norm(heads, dim=-1, keepdim=True)
        # A zero row becomes an infinite norm. So does NaN, which the features still carry.
        heads.div_(functional.threshold(norms, SMALLEST_NORM, torch.inf, inplace=True))
        target = piece.of(out).view(1, -1, x.shape[-1])
        product(features, w_out.t(), out=target, bias=b_out)
        if hidden is not None:
            target.masked_fill_(hidden, 0.0)
    return out
