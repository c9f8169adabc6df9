"""A few positions of a causal layer without gradients: a token of a stream, the window of an agent.

The passes for long sequences first bring the layer's maps into the form that is cheapest for a
position: W_c and the output projection become one, which alone costs as much as many positions do.
Here the parameters are used as they are, in as few operations as possible: what a token costs on
any device is mostly the number of operations. Scores are (B, N, 2h, s), the h query sides first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.features import SMALLEST_NORM
from .scan import causal_scan_both


def free_scores(
    x: Tensor,
    w_in: Tensor,
    b_in: Tensor | None,
    weights: Tensor | None,
    before: Tensor,
    seen: Tensor,
    *,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the running means of x (B, N, d), continued from the sum `before` (B, d) of `seen`
    (B,) positions; then the sum and the number after them. weights (z, h, s, p), transposed; None:
    the scores are the features."""
    counts = _counts(x, seen)
    sums = x.cumsum(1, dtype=before.dtype).add_(before.unsqueeze(1))
    after = sums[:, -1].clone()
    scores = _features(sums.div_(counts.unsqueeze(-1)).to(x.dtype), w_in, b_in, heads)
    if weights is not None:  # all positions of all samples share them
        rows = scores.flatten(0, 1).transpose(0, 1)  # (2h, B * N, p)
        scores = torch.bmm(rows, weights.flatten(0, 1).mT).transpose(0, 1)
        scores = scores.unflatten(0, x.shape[:2])
    return scores, after, counts[:, -1]


def tied_scores(
    x: Tensor,
    w_in: Tensor,
    b_in: Tensor | None,
    w_dual: Tensor,
    before: Tensor,
    seen: Tensor,
    *,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of x (B, N, d) whose sums run over j <= i, continued from the sums `before`
    (B, z, h, p, s) of `seen` (B,) positions; then the sums and the number after them."""
    phi = _features(x, w_in, b_in, heads).unflatten(2, (2, heads))  # (B, N, z, h, p)
    dual = F.linear(x, w_dual).unflatten(2, (2, heads, -1))  # (B, N, z, h, s)
    if x.shape[1] == 1:
        sums = torch.addcmul(before, phi[:, 0].unsqueeze(-1), dual[:, 0].unsqueeze(-2))
        scores = (phi[:, 0].to(sums.dtype).unsqueeze(-2) @ sums.flip(1)).movedim(-2, 1)
    else:
        phi, dual = (t.permute(0, 2, 3, 1, 4) for t in (phi, dual))
        scores, sums = causal_scan_both(phi, dual, before)
        scores = scores.permute(0, 3, 1, 2, 4)  # (B, N, z, h, s)
    counts = _counts(x, seen)
    scores = (scores / counts[:, :, None, None, None]).to(x.dtype)
    return scores.flatten(2, 3), sums, counts[:, -1]


def _features(x: Tensor, w_in: Tensor, b_in: Tensor | None, heads: int) -> Tensor:
    """phi_q and phi_k (equation 1, Remark 4.1): (B, N, 2h, p)."""
    sides = F.linear(x, w_in, b_in).view(*x.shape[:2], 2 * heads, len(w_in) // (2 * heads))
    norms = torch.linalg.vector_norm(sides, dim=-1, keepdim=True)
    # A zero row becomes an infinite norm. So does NaN, which the features still carry.
    return sides.div_(F.threshold(norms, SMALLEST_NORM, torch.inf, inplace=True))


def _counts(x: Tensor, seen: Tensor) -> Tensor:
    """(B, N): the positions up to every one."""
    return seen.unsqueeze(1) + torch.arange(1, x.shape[1] + 1, device=x.device)
