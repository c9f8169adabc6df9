"""Steps that all primal layers share, whoever makes their queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor

from ...distributed import WHOLE, WholeSequence
from ...kernels import reference
from ...theory.entry import Count, Parts
from .parameters import PrimalParameters, linear_parts
from .state import PrimalState


def output_map(layer: PrimalParameters, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """W_c and the output projection are one linear map of the scores: (d, 2h * s) and (d,)."""
    _, out_proj = linear_parts(layer)
    out = out_proj.weight.to(dtype).unflatten(1, (layer.num_heads, layer.head_dim))
    w_c, b_c = layer.readout()  # (p, 2s) and (p,)
    w_out = (out @ w_c.to(dtype)).unflatten(2, (2, layer.rank)).transpose(1, 2).flatten(1)
    if b_c is None:
        return w_out, w_out.new_zeros(layer.embed_dim)
    return w_out, out.sum(1) @ b_c.to(dtype) + out_proj.bias.to(dtype)


def causal_tied(
    layer: PrimalParameters,
    phi: Tensor,
    dual: Tensor,
    ignore: Tensor | None,
    state: PrimalState,
    shards: WholeSequence = WHOLE,
    turned: Tensor | None = None,
) -> tuple[Tensor, Tensor, PrimalState]:
    """Scores (B, z, h, N, s) whose sums (14) run over j <= i, by a scan in chunks; the weights
    (B, z, h, m, s) at the very end, which the trace in J takes; and the state after. `turned`: phi
    after a rotation."""
    positive = layer.feature_map.positive
    valid = torch.ones(phi.shape[0], phi.shape[-2], dtype=torch.long, device=phi.device)
    if ignore is not None:
        valid = (~ignore).long()

    def own_count() -> Tensor:
        return valid.sum(-1)

    def own_sums() -> Tensor:
        return reference.causal_tied_sums(phi, dual, positive, state.sums.dtype, turned)

    counts = shards.before(state.seen, own_count).unsqueeze(-1) + valid.cumsum(-1)
    before = shards.before(state.sums, own_sums)
    scores, sums = reference.causal_tied_scores(phi, dual, counts, positive, before, turned)
    scale = 1.0 / shards.end(counts[:, -1], own_count).clamp(min=1).to(sums.dtype)
    weights = shards.end(sums, own_sums)[..., : layer.rank].flip(1)  # W_e, W_r
    weights = weights * scale[:, None, None, None, None]
    return scores, weights, PrimalState(sums, counts[:, -1], None)


def valid_positions(x: Tensor, ignore: Tensor | None, shards: WholeSequence = WHOLE) -> Count:
    """How many positions of x (B, N, ...) are valid: a number where all samples have the same."""
    if ignore is None and shards.whole and not torch.compiler.is_compiling():
        return x.shape[1]
    return shards.count(x, ignore)


def objective_terms(
    layer: PrimalParameters, energy: Tensor, tied: Tensor | None, shards: WholeSequence = WHOLE
) -> Parts | Tensor:
    """The terms of J (equation 11) from sums of squared scores (B, z, h, s) and tied weights
    (B, z, ...): what they are made of, or over several workers the terms themselves, (3, B, h)."""
    weights = (layer.w_e, layer.w_r) if tied is None else (tied, None)
    parts = Parts(energy, layer.sqrt_lambda, *weights)
    if shards.whole:
        return parts
    energies = parts.energies()
    trace = parts.trace().expand_as(energies[0])
    if not (layer.causal and tied is not None):  # there every worker has a part of the weights
        trace = shards.shared(trace)
    return torch.cat([shards.once(energies), trace.unsqueeze(0)])
