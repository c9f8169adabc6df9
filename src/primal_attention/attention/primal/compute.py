"""One call of a primal layer: which projections, which path, what to remember for the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...kernels import reference as plain
from ...kernels.anchors import (
    anchor_projections,
    anchor_rows,
    sharded_anchor_rows,
    spread_projections,
)
from ...kernels.decoding import attend_short, is_short
from ...kernels.folded import attend_folded, features_are_cheaper, fold_weights
from ...kernels.passes import attend_fixed, attend_tied
from ...kernels.scan import running_mean
from ...kernels.shards import Shards, current_shards
from ...theory.features import Cosine
from ...theory.ledger import Entry
from ...theory.objective import trace_term
from ...theory.precision import autocast_dtype, widen, without_autocast
from ..inputs import Sequences
from .state import PrimalState

if TYPE_CHECKING:
    from .layer import PrimalAttention


class Maps(NamedTuple):
    """Linear maps of a layer: queries and keys (2d, d), and scores to output (d, 2h * s)."""

    w_in: Tensor
    b_in: Tensor | None
    w_out: Tensor
    b_out: Tensor


class Result(NamedTuple):
    out: Tensor  # (B, N, d)
    energy: Tensor | None  # (B, z, h, s): sums of squared e over queries, of squared r over keys
    tied: Tensor | None = None  # (B, z, h, s, m): tied projections, for the trace in J
    state: PrimalState | None = None


def attend(
    layer: PrimalAttention, call: Sequences, state: PrimalState | None, *, record: bool
) -> tuple[Tensor, PrimalState | None]:
    """The output (B, N, d), and in causal layers with a given state the state after it."""
    if layer.folded and layer.training:
        raise RuntimeError("a folded layer is for inference only; expected model.eval()")
    shards = current_shards()
    if shards is not None and (state is not None or not call.is_self):
        raise ValueError("a sharded sequence expects self-attention without a state")
    if shards is None and is_short(layer, call):
        before = layer.init_state(call.x.shape[0]) if state is None else state
        return attend_short(layer, call.x, before)
    device, dtype = call.x.device, autocast_dtype(call.x)
    record = record and not torch.compiler.is_exporting()
    x = call.x.to(dtype)
    call = call._replace(x=x, y=x if call.is_self else call.y.to(dtype))
    with without_autocast(device):
        maps = layer.maps(dtype)
        if layer.causal:
            result = _causal(layer, maps, call, state, record, shards)
        elif layer.weights == "tied":
            result = _tied(layer, maps, call, record, shards)
        else:
            result = _given(layer, maps, call, record, shards)
        out = result.out
        if not call.is_self and call.ignore is not None:  # a sample without any valid key
            out = out.masked_fill(call.ignore.all(-1)[:, None, None], 0.0)
        if record:
            out = layer.ledger.record(out, _entry(layer, call, result, shards))
    return out, result.state


def is_fast(layer: PrimalAttention, dtype: torch.dtype) -> bool:
    """Whether the hand-written passes may serve: eager, cosine features, no function transform, and
    not float16, where scores before their division by the norm may overflow."""
    return (
        layer.fast
        and isinstance(layer.feature_map, Cosine)
        and dtype != torch.float16
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def _dropout(layer: PrimalAttention) -> float:
    return layer.dropout if layer.training else 0.0


# -- data-dependent and free weights ---------------------------------------------------------------


def _given(
    layer: PrimalAttention, maps: Maps, call: Sequences, want_energy: bool, shards: Shards | None
) -> Result:
    key_sum = None
    if shards is not None and layer.feature_map.positive:
        phi_keys = plain.hide_features(_key_features(layer, maps, call), call.ignore)
        key_sum = shards.total(widen(phi_keys[:, 1]).sum(-2))
    w = layer.projections(call.x.dtype)
    if layer.anchors is None:
        return _evaluate(layer, maps, call, w[None], want_energy, key_sum)
    if shards is not None:
        y, rows = sharded_anchor_rows(call.y, call.ignore, layer.anchors, layer.anchor_rule, shards)
        call = call._replace(x=y, y=y)
        return _evaluate(layer, maps, call, anchor_projections(rows, w), want_energy, key_sum)
    # a graph with a dynamic length must not ask how long the sequence is: eager mode first
    eager = is_fast(layer, call.y.dtype) and layer.anchor_rule == "sample"
    eager = eager and call.y.device.type in ("cpu", "cuda")  # where there are sums of rows
    if eager and layer.anchors > call.y.shape[1]:
        projections = spread_projections(call.y, call.ignore, w)
    else:
        y, rows = anchor_rows(call.y, call.ignore, layer.anchors, layer.anchor_rule)
        call = call._replace(x=y if call.is_self else call.x, y=y)
        projections = anchor_projections(rows, w)
    return _evaluate(layer, maps, call, projections, want_energy)


def _evaluate(
    layer: PrimalAttention,
    maps: Maps,
    call: Sequences,
    projections: Tensor,
    want_energy: bool,
    key_sum: Tensor | None = None,
) -> Result:
    """Scores and output for given projections (B or 1, z, h, s, m)."""
    hidden = call.ignore if call.is_self else None
    if is_fast(layer, call.x.dtype):
        sides = 2 * layer.num_heads
        if not (torch.is_grad_enabled() or want_energy or _dropout(layer)):
            if layer.folded == "features":
                maps = maps._replace(w_out=maps.w_out[None])
                return Result(attend_folded(call.x, hidden, *maps, sides=sides), None)
            if _folding_pays(layer, call.x, projections):
                maps = maps._replace(w_out=fold_weights(maps.w_out, projections))
                return Result(attend_folded(call.x, hidden, *maps, sides=sides), None)
        out, energy = attend_fixed(
            call.x, hidden, maps.w_in, maps.b_in, projections.flatten(1, 2), maps.w_out, maps.b_out,
            sides=sides, dropout=_dropout(layer), want_energy=want_energy,
        )  # fmt: skip
        energy = None if energy is None else energy.unflatten(1, (2, -1))
        phi_keys = None
    else:
        phi = plain.features(plain.hide(call.x, hidden), maps.w_in, maps.b_in, layer.feature_map)
        phi_keys = phi if call.is_self else None
        if layer.feature_map.positive and key_sum is None:
            phi_keys = phi if call.is_self else _key_features(layer, maps, call)
            key_sum = widen(plain.hide_features(phi_keys, call.ignore)[:, 1]).sum(-2)
        scores = plain.given_scores(phi, projections.mT, hidden, key_sum)
        out = plain.output(scores, hidden, maps.w_out, maps.b_out, _dropout(layer))
        energy = plain.energy(scores) if want_energy else None
    if energy is not None and not call.is_self:  # J takes r at the keys, not at the queries
        phi_keys = _key_features(layer, maps, call) if phi_keys is None else phi_keys
        at_keys = plain.given_scores(phi_keys, projections.mT, call.ignore, key_sum)
        energy = torch.stack([energy[:, 0], plain.energy(at_keys)[:, 1]], dim=1)
    return Result(out, energy)


def _folding_pays(layer: PrimalAttention, x: Tensor, projections: Tensor) -> bool:
    """Whether many positions share each set of maps that would be made for one call."""
    positions = x.shape[1] if len(projections) > 1 else x.shape[0] * x.shape[1]
    cheaper = features_are_cheaper(layer.rank, projections.shape[-1], layer.embed_dim)
    return cheaper and positions >= 8 * layer.rank


def _key_features(layer: PrimalAttention, maps: Maps, call: Sequences) -> Tensor:
    y = plain.hide(call.y, call.ignore)
    return plain.features(y, maps.w_in, maps.b_in, layer.feature_map)


# -- tied weights ----------------------------------------------------------------------------------


def _tied(
    layer: PrimalAttention, maps: Maps, call: Sequences, want_energy: bool, shards: Shards | None
) -> Result:
    count = count_valid(call.y, call.ignore)
    if shards is not None:
        count = shards.sum_(count)
    scale = 1.0 / count.clamp(min=1).to(call.y.dtype)
    w_dual = layer.dual_weight.to(call.y.dtype)
    if call.is_self and shards is None and is_fast(layer, call.x.dtype):
        out, energy, weights = attend_tied(
            call.x, call.ignore, scale, maps.w_in, maps.b_in, w_dual, maps.w_out, maps.b_out,
            sides=2 * layer.num_heads, dropout=_dropout(layer), want_energy=want_energy,
        )  # fmt: skip
        energy = None if energy is None else energy.unflatten(1, (2, -1))
        return Result(out, energy, weights.unflatten(1, (2, -1)))
    phi_keys = plain.hide_features(_key_features(layer, maps, call), call.ignore)
    dual = plain.duals(plain.hide(call.y, call.ignore), w_dual, layer.num_heads)
    weights = plain.tied_weights(phi_keys, dual, scale)  # (B, z, h, m, s)
    if shards is not None:
        weights = shards.total(weights)
    if not layer.feature_map.positive:
        result = _evaluate(layer, maps, call, weights.mT, want_energy)
        return result._replace(tied=weights.mT)
    sums = widen(phi_keys).sum(-2) * scale[:, None, None, None]
    if shards is not None:
        sums = shards.total(sums)
    phi = phi_keys
    if not call.is_self:
        phi = plain.features(call.x, maps.w_in, maps.b_in, layer.feature_map)
    scores = plain.tied_scores(phi, weights, sums)
    hidden = call.ignore if call.is_self else None
    out = plain.output(scores, hidden, maps.w_out, maps.b_out, _dropout(layer))
    energy = None
    if want_energy:
        at_keys = scores if call.is_self else plain.tied_scores(phi_keys, weights, sums)
        energy = torch.stack([plain.energy(scores)[:, 0], plain.energy(at_keys)[:, 1]], dim=1)
    return Result(out, energy, weights.mT)


# -- causal ----------------------------------------------------------------------------------------


def _causal(
    layer: PrimalAttention,
    maps: Maps,
    call: Sequences,
    state: PrimalState | None,
    want_energy: bool,
    shards: Shards | None,
) -> Result:
    state = layer.init_state(call.x.shape[0]) if state is None else state
    if shards is not None:
        count = count_valid(call.x, call.ignore)
        state = state._replace(seen=shards.gather(count)[: shards.rank].sum(0))
    run = _causal_tied if layer.weights == "tied" else _causal_free
    return run(layer, maps, call, state, want_energy, shards)


def _causal_free(
    layer: PrimalAttention,
    maps: Maps,
    call: Sequences,
    state: PrimalState,
    want_energy: bool,
    shards: Shards | None,
) -> Result:
    """Queries and keys are replaced by their running means (appendix, figure 3)."""
    if shards is not None:
        own = plain.hide(call.x, call.ignore).sum(1, dtype=state.sums.dtype)
        state = state._replace(sums=shards.before(own))
    mean, total, count = running_mean(call.x, call.ignore, state.sums, state.seen)
    call = call._replace(x=mean, y=mean)
    key_sum = None
    if state.key_sum is not None:
        phi_k = plain.hide_features(_key_features(layer, maps, call), call.ignore)[:, 1]
        earlier = state.key_sum if shards is None else shards.before(widen(phi_k).sum(-2))
        key_sum = widen(phi_k).cumsum(-2) + earlier.unsqueeze(2)
    projections = layer.projections(call.x.dtype)[None]
    result = _evaluate(layer, maps, call, projections, want_energy, key_sum)
    last = None if key_sum is None else key_sum[:, :, -1]
    return result._replace(state=PrimalState(total, count, last))


def _causal_tied(
    layer: PrimalAttention,
    maps: Maps,
    call: Sequences,
    state: PrimalState,
    want_energy: bool,
    shards: Shards | None,
) -> Result:
    """The sums over j <= i, by a chunked scan."""
    positive = layer.feature_map.positive
    x = plain.hide(call.x, call.ignore)
    phi = plain.features(x, maps.w_in, maps.b_in, layer.feature_map)
    phi = plain.hide_features(phi, call.ignore)
    dual = plain.duals(x, layer.dual_weight.to(x.dtype), layer.num_heads)
    steps = torch.ones(x.shape[:2], dtype=torch.long, device=x.device)
    if call.ignore is not None:
        steps = (~call.ignore).long()
    counts = state.seen.unsqueeze(-1) + steps.cumsum(-1)
    if shards is not None:
        own = plain.causal_tied_sums(phi, dual, positive, state.sums.dtype)
        state = state._replace(sums=shards.before(own))
    scores, sums = plain.causal_tied_scores(phi, dual, counts, positive, state.sums)
    out = plain.output(scores, call.ignore, maps.w_out, maps.b_out, _dropout(layer))
    energy = plain.energy(scores) if want_energy else None
    count, whole = counts[:, -1], sums
    if shards is not None:  # the trace in J takes the weights at the very end
        count, whole = shards.sum_(steps.sum(-1)), shards.once(own)
    scale = 1.0 / count.clamp(min=1).to(sums.dtype)
    weights = whole[..., : layer.rank].flip(1) * scale[:, None, None, None, None]  # W_e, W_r
    after = PrimalState(sums, counts[:, -1], None)
    return Result(out, energy, weights.mT, after)


# -- the objective ---------------------------------------------------------------------------------


def count_valid(y: Tensor, ignore: Tensor | None) -> Tensor:
    """(B,): the number of valid positions."""
    if ignore is None:
        return torch.full((y.shape[0],), y.shape[1], device=y.device)
    return (~ignore).sum(-1)


def _entry(layer: PrimalAttention, call: Sequences, result: Result, shards: Shards | None) -> Entry:
    """What J needs of this forward (equation 11)."""
    energy = result.energy
    if energy is None:
        raise RuntimeError("a forward without energies cannot be recorded")
    lam = layer.sqrt_lambda.to(energy.dtype).square()
    energies = (energy * lam).sum(-1).transpose(0, 1)  # (z, B, h)
    if result.tied is None:
        trace = trace_term(layer.w_e, layer.w_r).to(energy.dtype).expand_as(energies[0])
    else:
        trace = trace_term(result.tied[:, 0], result.tied[:, 1]).to(energy.dtype)
    count_r = count_valid(call.y, call.ignore)
    if shards is not None:
        energies, count_r = shards.once(energies), shards.sum_(count_r)
        if not (layer.causal and layer.weights == "tied"):  # of which every worker has a part
            trace = shards.shared(trace)
    terms = torch.cat([energies, trace.unsqueeze(0)])
    count_e = count_r if call.is_self else count_valid(call.x, None)
    return Entry(terms, count_e, count_r)
