"""The steps of Primal-Attention in plain differentiable operations: the truth of every fast pass.

They serve in compiled and exported graphs, with feature maps other than the cosine, for causal tied
weights, and where a second derivative is wanted. Shapes: B samples, N positions, h heads of width
p, m features, s directions; dimension z = 2 holds (queries, keys), (W_e, W_r) or (e, r).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.features import SMALLEST_NORM, FeatureMap
from ..theory.precision import widen
from .scan import causal_scan_both


def features(x: Tensor, w_in: Tensor, b_in: Tensor | None, feature_map: FeatureMap) -> Tensor:
    """phi_q and phi_k of every position (equation 1 and Remark 4.1): (B, z, h, N, m).

    w_in, b_in: as `feature_map.fold` has scaled them. Positive features are kept in float32 at
    least: they range beyond half precision.
    """
    x = unit_rows(x) if feature_map.unit_rows else x
    qk = F.linear(x, w_in, b_in)  # (B, N, 2d)
    heads = qk.unflatten(-1, (2, -1, feature_map.head_dim))  # (B, N, z, h, p)
    heads = heads.permute(0, 2, 3, 1, 4)
    return feature_map.features(widen(heads) if feature_map.positive else heads)


def unit_rows(x: Tensor) -> Tensor:
    """`x / rms(x)` for every row of (..., d); a row without a direction is zero, as is its
    gradient."""
    wide = widen(x)
    square = wide.square().sum(-1, keepdim=True)
    alive = square > SMALLEST_NORM**2
    factor = torch.where(alive, torch.where(alive, square / x.shape[-1], 1.0).rsqrt(), 0.0)
    return (wide * factor).to(x.dtype)


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
    return (phi[:, 0].to(key_sum.dtype) * key_sum).sum(-1)[:, None, :, :, None]


def scores(
    phi: Tensor,
    weights: Tensor,
    ignore: Tensor | None,
    key_sum: Tensor | None = None,
    tied_sums: Tensor | None = None,
    turned: Tensor | None = None,
) -> Tensor:
    """`e = W_e|X^T phi_q`, `r = W_r|X^T phi_k` (equation 9), (B, z, h, N, s), zero where ignored.

    weights: (B or 1, z, h, m, s). With a positive feature map, fixed weights have both scaled by
    D^{-1/2} (see `normaliser`), tied ones divide by the row sums of both kernels (`tied_ratio`).
    turned: phi after a rotation, which the normaliser does not see.
    """
    if tied_sums is not None:
        found = tied_ratio(phi, weights, tied_sums, turned)
    else:
        found = (phi if turned is None else turned) @ weights.to(phi.dtype)
        if key_sum is not None:
            scaled = found * inverse_positive(normaliser(phi, key_sum)).sqrt()
            found = scaled.to(found.dtype)
    return hide_features(found, ignore)


def inverse_positive(denominator: Tensor) -> Tensor:
    """1 / D in float32 or wider, and 0 where nothing was summed or all features underflow: below
    that bound the derivative 1 / D^2 would not be finite."""
    denominator = widen(denominator)
    empty = denominator <= torch.finfo(denominator.dtype).tiny ** 0.5
    return torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, denominator))


def duals(x: Tensor, w_dual: Tensor, heads: int) -> Tensor:
    """The dual variables h_e, h_r of every position, linear in x: (B, z, h, N, s)."""
    dual: Tensor = F.linear(x, w_dual).unflatten(-1, (2, heads, -1))  # (B, N, z, h, s)
    return dual.permute(0, 2, 3, 1, 4)


def tied_weights(phi: Tensor, dual: Tensor, scale: Tensor) -> Tensor:
    """W_e|X and W_r|X by the KKT conditions (14), (B, z, h, m, s). scale: (B,), the constant c.

    phi and dual must be zero at ignored positions.
    """
    # scaled before the sum: in float16 the sum would overflow
    scaled = (dual * scale.view(-1, 1, 1, 1, 1)).to(phi.dtype)
    sums = phi.mT @ scaled  # phi_q h_e^T = W_r, phi_k h_r^T = W_e
    return sums.flip(1)


def tied_ratio(phi: Tensor, weights: Tensor, sums: Tensor, turned: Tensor | None = None) -> Tensor:
    """Scores of the points phi (B, z, h, N, m) with positive features and tied weights, divided by
    `phi_q (Phi_k^T 1)` and `phi_k (Phi_q^T 1)`. `sums` (B, z, h, m) are c times the sums of phi_q
    and phi_k over the context: the constant c cancels. `turned` takes the place of phi in the
    scores, not in what divides them."""
    # Any factor of a row of phi, or of the context, cancels too: bring both to size 1.
    sums = widen(sums).flip(1).unsqueeze(-1)  # (B, z, h, m, 1)
    size = inverse_positive(sums.detach().amax(-2, keepdim=True))
    rows = widen(phi)
    scale = inverse_positive(rows.detach().amax(-1, keepdim=True))
    rows = rows * scale
    scored = rows if turned is None else widen(turned) * scale
    ratio = (scored @ (widen(weights) * size)) * inverse_positive(rows @ (sums * size))
    return ratio.to(phi.dtype)


def causal_tied_scores(
    phi: Tensor,
    dual: Tensor,
    counts: Tensor,
    positive: bool,
    state: Tensor,
    turned: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Tied scores whose sums run over j <= i; returns scores and state (B, z, h, m, s (+ 1)).

    counts: (B, N), valid positions so far: c = 1 / count. A positive feature map is normalised by a
    further column of ones instead. `turned` takes the place of phi everywhere but in that column,
    so that what divides stays positive.
    """
    if turned is not None and positive:
        scores, sums = causal_scan_both(turned, dual, state[..., :-1])
        ones = state[..., -1].unsqueeze(-2) + phi.to(state.dtype).cumsum(-2)  # (B, z, h, N, m)
        divisor = (phi.to(state.dtype) * ones.flip(1)).sum(-1, keepdim=True)
        ratio = scores * inverse_positive(divisor)
        return ratio.to(scores.dtype), torch.cat([sums, ones[..., -1, :, None]], -1)
    phi = phi if turned is None else turned
    if positive:
        dual = F.pad(dual, (0, 1), value=1.0)
    scores, state = causal_scan_both(phi, dual, state)
    if positive:
        ratio = scores[..., :-1] * inverse_positive(scores[..., -1:])
        return ratio.to(scores.dtype), state
    return scores / counts.clamp(min=1).to(scores.dtype)[:, None, None, :, None], state


def causal_tied_sums(
    phi: Tensor, dual: Tensor, positive: bool, dtype: torch.dtype, turned: Tensor | None = None
) -> Tensor:
    """What a sequence adds to the state of `causal_tied_scores`."""
    sums = (phi if turned is None else turned).to(dtype).mT @ dual.to(dtype)
    if not positive:
        return sums
    return torch.cat([sums, phi.to(dtype).sum(-2).unsqueeze(-1)], -1)


def energy(scores: Tensor) -> Tensor:
    """Sums of squared scores over positions, (B, z, h, s), in float32 or wider."""
    return widen(scores).square().sum(-2)


def output(
    scores: Tensor,
    ignore: Tensor | None,
    w_out: Tensor,
    b_out: Tensor,
    dropout: float,
) -> Tensor:
    """`w_out s + b_out`, W_c and the output projection in one, (B, N, d); w_out: (d, 2h * s)."""
    dropped = F.dropout(scores, dropout) if dropout else scores
    flat = dropped.permute(0, 3, 1, 2, 4).flatten(2).to(w_out.dtype)  # (B, N, 2h * s)
    return hide(F.linear(flat, w_out, b_out), ignore)
