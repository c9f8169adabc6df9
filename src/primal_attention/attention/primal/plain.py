"""Primal-Attention in ordinary differentiable operations: the truth of the hand-written passes.

It is what runs inside compiled and exported graphs, with feature maps other than the cosine, for
causal tied weights, and where a second derivative is wanted. Shapes: B samples, N positions, h
heads of width p, m features, s directions; dimension z = 2 holds (queries, keys), (W_e, W_r) or
(e, r).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...ksvd.features import FeatureMap
from .running import causal_scan


def features(x: Tensor, w_in: Tensor, b_in: Tensor | None, feature_map: FeatureMap) -> Tensor:
    """phi_q and phi_k of every position (equation 1 and Remark 4.1): (B, z, h, N, m)."""
    qk = F.linear(x, w_in, b_in)  # (B, N, 2d)
    heads = qk.unflatten(-1, (2, -1, feature_map.head_dim))  # (B, N, z, h, p)
    phi: Tensor = feature_map(heads.permute(0, 2, 3, 1, 4))
    return phi


def hide(tensor: Tensor, ignore: Tensor | None) -> Tensor:
    """Zero the ignored rows of (B, N, c); NaN there must not spread, so no product."""
    return tensor if ignore is None else tensor.masked_fill(ignore.unsqueeze(-1), 0.0)


def hide_features(phi: Tensor, ignore: Tensor | None) -> Tensor:
    """Zero the ignored positions of (B, z, h, N, c)."""
    return phi if ignore is None else phi.masked_fill(ignore[:, None, None, :, None], 0.0)


def normaliser(phi: Tensor, key_sum: Tensor) -> Tensor:
    """Remark 4.1: D at every point, `phi_q(x)^T sum_j phi_k(x_j)`: (B, 1, h, N, 1).

    key_sum: (B, h, m), or (B, h, N, m) when it runs along the positions.
    """
    if key_sum.dim() == 3:
        key_sum = key_sum.unsqueeze(2)
    return (phi[:, 0] * key_sum).sum(-1)[:, None, :, :, None]


def given_scores(
    phi: Tensor, weights: Tensor, ignore: Tensor | None, key_sum: Tensor | None
) -> Tensor:
    """`e = W_e|X^T phi_q`, `r = W_r|X^T phi_k` (equation 9), both scaled by D^{-1/2} if the feature
    map has a normaliser. weights: (B or 1, z, h, m, s); scores: (B, z, h, N, s)."""
    scores = phi @ weights
    if key_sum is not None:
        scores = scores * inverse_positive(normaliser(phi, key_sum)).sqrt()
    return hide_features(scores, ignore)


def inverse_positive(denominator: Tensor) -> Tensor:
    """1 / D, and 0 where nothing was summed."""
    empty = denominator <= 0
    return torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, denominator))


def duals(x: Tensor, w_dual: Tensor, heads: int) -> Tensor:
    """The dual variables h_e, h_r of every position, linear in x: (B, z, h, N, s)."""
    dual: Tensor = F.linear(x, w_dual).unflatten(-1, (2, heads, -1))  # (B, N, z, h, s)
    return dual.permute(0, 2, 3, 1, 4)


def tied_weights(phi: Tensor, dual: Tensor, scale: Tensor) -> Tensor:
    """W_e|X and W_r|X by the KKT conditions (14), (B, z, h, m, s). scale: (B,), the constant c.

    phi and dual must be zero at ignored positions.
    """
    sums = phi.mT @ dual  # z: sum phi_q h_e^T = W_r, sum phi_k h_r^T = W_e
    return sums.flip(1) * scale.view(-1, 1, 1, 1, 1)


def tied_scores(phi: Tensor, weights: Tensor, sums: Tensor | None) -> Tensor:
    """Scores of the points phi (B, z, h, N, m). With a positive feature map, `sums` (B, z, h, m)
    are c times the sums of phi_q and phi_k over the context, and scores are divided by
    `phi_q (Phi_k^T 1)` and `phi_k (Phi_q^T 1)`: the constant c cancels."""
    scores = phi @ weights
    if sums is None:
        return scores
    return scores * inverse_positive(phi @ sums.flip(1).unsqueeze(-1))


def causal_tied_scores(
    phi: Tensor, dual: Tensor, counts: Tensor, positive: bool, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Tied scores whose sums run over j <= i; returns scores and state (B, z, h, m, s (+ 1)).

    counts: (B, N), valid positions so far: c = 1 / count. A positive feature map is normalised by a
    further column of ones instead.
    """
    if positive:
        dual = F.pad(dual, (0, 1), value=1.0)
    scores, state = causal_scan(phi, phi.flip(1), dual.flip(1), state)
    if positive:
        return scores[..., :-1] * inverse_positive(scores[..., -1:]), state
    return scores / counts.clamp(min=1).to(scores.dtype)[:, None, None, :, None], state


def energy(scores: Tensor) -> Tensor:
    """Sums of squared scores over positions, (B, z, h, s), in float32 or wider."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(wide).square().sum(-2)


def output(
    scores: Tensor,
    ignore: Tensor | None,
    w_out: Tensor,
    b_out: Tensor,
    dropout: float,
) -> Tensor:
    """`w_out s + b_out`, W_c and the output projection in one, (B, N, d); w_out: (d, 2h * s)."""
    dropped = F.dropout(scores, dropout) if dropout else scores
    flat = dropped.permute(0, 3, 1, 2, 4).flatten(2)  # (B, N, 2h * s)
    return hide(F.linear(flat, w_out, b_out), ignore)
