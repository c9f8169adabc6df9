"""A few positions of a causal layer without gradients: a token of a stream, the window of an agent.

The passes for long sequences first bring the layer's maps into the form that is cheapest for a
position: W_c and the output projection become one, which alone costs as much as many positions do.
Here the parameters are used as they are, in as few operations as possible: what a token costs on
any device is mostly the number of operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention.inputs import Sequences
from ..attention.primal.state import PrimalState
from ..theory.features import SMALLEST_NORM, Cosine
from .scan import causal_scan_both

if TYPE_CHECKING:
    from ..attention.primal.layer import PrimalAttention

MOST_POSITIONS = 256


def is_short(layer: PrimalAttention, call: Sequences) -> bool:
    """Whether `attend_short` serves: also not in half precision, whose care is taken elsewhere."""
    # first: a graph with a dynamic length must not ask how long the sequence is
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    x = call.x
    return (
        layer.causal
        and layer.fast
        and not layer.training
        and call.ignore is None
        and x.shape[0] * x.shape[1] <= MOST_POSITIONS
        and not torch.is_grad_enabled()
        and x.dtype == layer.in_proj_weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled(x.device.type)
        and isinstance(layer.feature_map, Cosine)
    )


def attend_short(
    layer: PrimalAttention, x: Tensor, state: PrimalState
) -> tuple[Tensor, PrimalState]:
    """The output (B, N, d) of x (B, N, d) that goes on from a state, and the state after it."""
    if layer.weights == "tied":
        scores, state = _tied_scores(layer, x, state)
    else:
        scores, state = _free_scores(layer, x, state)
    return _output(layer, scores), state


def _features(layer: PrimalAttention, x: Tensor) -> Tensor:
    """phi_q and phi_k (equation 1, Remark 4.1): (B, N, 2h, p)."""
    qk = F.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    sides = qk.view(*x.shape[:2], 2 * layer.num_heads, layer.head_dim)
    norms = torch.linalg.vector_norm(sides, dim=-1, keepdim=True)
    # A zero row becomes an infinite norm. So does NaN, which the features still carry.
    return sides.div_(F.threshold(norms, SMALLEST_NORM, torch.inf, inplace=True))


def _counts(x: Tensor, state: PrimalState) -> Tensor:
    """(B, N): the positions up to every one."""
    return state.seen.unsqueeze(1) + torch.arange(1, x.shape[1] + 1, device=x.device)


def _free_scores(
    layer: PrimalAttention, x: Tensor, state: PrimalState
) -> tuple[Tensor, PrimalState]:
    counts = _counts(x, state)
    sums = x.cumsum(1, dtype=state.sums.dtype).add_(state.sums.unsqueeze(1))
    after = PrimalState(sums[:, -1].clone(), counts[:, -1], None)
    phi = _features(layer, sums.div_(counts.unsqueeze(-1)).to(x.dtype))
    if layer.folded == "features":
        scores = phi
    else:
        # all positions of all samples share the projections
        rows = phi.flatten(0, 1).transpose(0, 1)  # (2h, B * N, p)
        weights = layer.projections(x.dtype).flatten(0, 1)  # (2h, s, p)
        scores = torch.bmm(rows, weights.mT).transpose(0, 1).unflatten(0, x.shape[:2])
    return scores, after


def _tied_scores(
    layer: PrimalAttention, x: Tensor, state: PrimalState
) -> tuple[Tensor, PrimalState]:
    heads = (2, layer.num_heads)
    phi = _features(layer, x).unflatten(2, heads)  # (B, N, z, h, p)
    dual = F.linear(x, layer.dual_weight).unflatten(2, (*heads, layer.rank))  # (B, N, z, h, s)
    if x.shape[1] == 1:
        sums = torch.addcmul(state.sums, phi[:, 0].unsqueeze(-1), dual[:, 0].unsqueeze(-2))
        scores = (phi[:, 0].to(sums.dtype).unsqueeze(-2) @ sums.flip(1)).movedim(-2, 1)
    else:
        phi, dual = (t.permute(0, 2, 3, 1, 4) for t in (phi, dual))
        scores, sums = causal_scan_both(phi, dual, state.sums)
        scores = scores.permute(0, 3, 1, 2, 4)  # (B, N, z, h, s)
    counts = _counts(x, state)
    scores = (scores / counts[:, :, None, None, None]).to(x.dtype)
    return scores.flatten(2, 3), PrimalState(sums, counts[:, -1], None)


def _output(layer: PrimalAttention, scores: Tensor) -> Tensor:
    """W_c and the output projection, one after the other, of scores (B, N, 2h, s)."""
    if layer.folded:
        return F.linear(scores.flatten(2), layer.folded_w_out, layer.folded_b_out)
    layer.expect_linear_parts()
    pairs = scores.unflatten(2, (2, layer.num_heads)).transpose(2, 3).flatten(3)  # (B, N, h, 2s)
    heads = F.linear(pairs, layer.concat.weight, layer.concat.bias)  # (B, N, h, p)
    return F.linear(heads.flatten(2), layer.out_proj.weight, layer.out_proj.bias)
