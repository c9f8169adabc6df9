"""The dual view of a primal layer: its induced kernel and its KSVD problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...kernels import reference as plain
from ...kernels.anchors import anchor_rows
from ...kernels.scan import running_mean
from ...theory.factors import KernelFactors
from ...theory.objective import Positions, check_positions
from ...theory.precision import widen
from ...theory.problem import KSVDProblem
from ..inputs import Sequences
from .compute import count_valid

if TYPE_CHECKING:
    from .layer import PrimalAttention


def dense_kernel(layer: PrimalAttention, call: Sequences) -> Tensor:
    """The induced kernel K (B, h, N, M), formed: quadratic, for a person who asks.

    Causal tied layers sum over j <= i: their kernel is the lower triangle.
    """
    dense = _factors(layer, call).dense()
    return dense.tril() if layer.causal and layer.weights == "tied" else dense


def factors(layer: PrimalAttention, call: Sequences) -> KernelFactors:
    """K = A B^T with A (B, h, N, m), B (B, h, M, m); ignored positions have zero rows."""
    if layer.causal and layer.weights == "tied":
        raise ValueError(
            "the kernel of a causal tied layer is a triangle, not a product of factors; expected a "
            "layer that is not causal (or need_weights=True, which forms it)"
        )
    return _factors(layer, call)


def _factors(layer: PrimalAttention, call: Sequences) -> KernelFactors:
    phi_q, phi_k = _features(layer, call)
    if layer.weights == "tied" and layer.feature_map.positive:  # rows are divided by their sums
        sums = phi_k.cumsum(-2) if layer.causal else phi_k.sum(-2, keepdim=True)
        phi_q = phi_q * plain.inverse_positive((phi_q * sums).sum(-1, keepdim=True))
    return KernelFactors.from_features(phi_q, phi_k, _anchor_rows(layer, call))


def problem(layer: PrimalAttention, call: Sequences) -> KSVDProblem:
    """Problem (6) with the layer's current variables, shapes (B, h, ...)."""
    if layer.weights == "tied" and (layer.causal or layer.feature_map.positive):
        raise ValueError(
            "a tied layer that is causal or normalises rows and columns apart is not one KSVD "
            'problem; expected causal=False and feature_map="cosine"'
        )
    phi_q, phi_k = _features(layer, call)
    valid = None if call.ignore is None else ~call.ignore.unsqueeze(1)
    if layer.weights == "tied":
        scale = 1.0 / count_valid(call.y, call.ignore).clamp(min=1).to(phi_k.dtype)
        y = plain.hide(call.y, call.ignore)
        dual = plain.duals(y, layer.dual_weight, layer.num_heads)
        key_phi = torch.stack(_features(layer, call._replace(x=call.y)), dim=1)
        w_e, w_r = plain.tied_weights(key_phi, dual, scale).unbind(1)
    else:
        w_e, w_r = layer.w_e.unsqueeze(0), layer.w_r.unsqueeze(0)
    return KSVDProblem(
        phi_q, phi_k, w_e, w_r, layer.sqrt_lambda.unsqueeze(0),
        f=_anchor_rows(layer, call), valid_q=valid if call.is_self else None, valid_k=valid,
    )  # fmt: skip


@torch.no_grad()
def init_ksvd_(layer: PrimalAttention, call: Sequences, positions: Positions) -> None:
    """W_e = Phi_k^T H_r, W_r = Phi_q^T H_e, Lambda = Sigma^{-1} (14), of the kernel between all
    valid positions of the batch.

    With means over N queries and M keys, (11) is that of Phi_q / sqrt(N) and Phi_k / sqrt(M), and
    Lambda = sqrt(N M) Sigma^{-1}. A factor may go from W_r to W_e: with (N / M)^{1/4} (14) holds
    for the residuals' H_e = e Lambda / N and H_r = r Lambda / M too.
    """
    check_positions(positions)
    if layer.weights == "tied":
        raise ValueError(
            "tied weights satisfy the first two lines of (14) by construction and have no W_e, W_r "
            'to set; expected weights="data" or "free"'
        )
    if layer.weights == "data" and len(call.x) != 1:
        raise ValueError(
            f'the batch holds {len(call.x)} sequences; weights="data" has another F_X in each, so '
            "one solution for all does not exist: expected a batch of one, e.g. x[:1]"
        )
    phi_q, phi_k = _features(layer, call)
    f = _anchor_rows(layer, call)
    if f is not None:
        f = f.to(phi_q.dtype)
        phi_q, phi_k = phi_q @ f.mT, phi_k @ f.mT  # (B, h, N, n)
    a, b = (phi.transpose(0, 1).flatten(1, 2) for phi in (phi_q, phi_k))  # (h, B * N, n)
    kernel = KernelFactors(a, b)
    left, sigma, right = kernel.svd(min(layer.rank, kernel.max_rank))
    smallest = sigma[:, -1:].amin() if sigma.shape[-1] == layer.rank else sigma.new_zeros(())
    if not bool(smallest > torch.finfo(sigma.dtype).eps * len(a[0]) * sigma.amax()):
        raise ValueError(
            f"the induced kernel of this batch has fewer than rank = {layer.rank} non-zero "
            f"singular values; expected rank <= head_dim = {layer.head_dim} and enough positions"
        )
    queries = keys = sigma.new_ones(())
    if positions == "mean":
        keys = count_valid(call.y, call.ignore).sum().to(sigma.dtype)
        queries = keys if call.is_self else count_valid(call.x, None).sum().to(sigma.dtype)
    tilt = (queries / keys) ** 0.25
    layer.w_e.copy_(b.mT @ right * tilt)
    layer.w_r.copy_(a.mT @ left / tilt)
    layer.sqrt_lambda.copy_(((queries * keys).sqrt() / sigma).sqrt())


def _features(layer: PrimalAttention, call: Sequences) -> tuple[Tensor, Tensor]:
    """phi_q of x and phi_k of y, (B, h, N, m) and (B, h, M, m), zero where ignored; scaled by
    D^{-1/2} where Remark 4.1 scales the scores."""
    dtype = layer.in_proj_weight.dtype
    maps = layer.maps(dtype)
    x, y = call.x.to(dtype), call.y.to(dtype)
    if layer.causal and layer.weights == "free":
        state = layer.init_state(x.shape[0])
        x, _, _ = running_mean(x, call.ignore, state.sums, state.seen)
        y = x
    hidden = call.ignore if call.is_self else None

    def both(rows: Tensor, ignore: Tensor | None) -> Tensor:
        phi = plain.features(plain.hide(rows, ignore), maps.w_in, maps.b_in, layer.feature_map)
        return plain.hide_features(phi, ignore)

    at_x = both(x, hidden)
    at_y = at_x if call.is_self else both(y, call.ignore)
    phi_q, phi_k = at_x[:, 0], at_y[:, 1]
    if layer.feature_map.positive and layer.weights != "tied":
        key_sum = widen(phi_k).cumsum(-2) if layer.causal else widen(phi_k).sum(-2)
        phi_q = phi_q * plain.inverse_positive(plain.normaliser(at_x, key_sum))[:, 0].sqrt()
        phi_k = phi_k * plain.inverse_positive(plain.normaliser(at_y, key_sum))[:, 0].sqrt()
    return phi_q, phi_k


def _anchor_rows(layer: PrimalAttention, call: Sequences) -> Tensor | None:
    """F_X (B, h, n, p), or None where it is the identity."""
    if layer.anchors is None:
        return None
    _, rows = anchor_rows(call.y, call.ignore, layer.anchors, layer.anchor_rule)
    heads: Tensor = rows.unflatten(-1, (layer.num_heads, layer.head_dim))  # (B, n, h, p)
    return heads.transpose(1, 2)
