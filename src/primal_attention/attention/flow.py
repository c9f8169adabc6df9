"""Flowformer: attention as a flow that is conserved at its sources and its sinks."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..kernels.ordering import positions
from ..kernels.scan import Sums, causal_scan
from .cost import Terms
from .factored import FactoredAttention, Factors, count, inner_products, inverse, weighted_sums
from .projected import hide
from .registry import register

__all__ = ["FlowAttention", "FlowState"]


class FlowState(NamedTuple):
    """Sums over the valid positions so far: of keys and queries, of both by their flows (B, h, p);
    of the competing weights (B, h); of keys and values; and the number of positions (B,)."""

    keys: Tensor
    queries: Tensor
    keys_by_flow: Tensor
    queries_by_flow: Tensor
    competition: Tensor
    sums: Sums
    seen: Tensor


@register(
    "flow",
    paper="Wu et al.: Flowformer: Linearizing Transformers with Conservation Flows, ICML 2022",
    cost="O(N)",
)
class FlowAttention(FactoredAttention):
    """Flow attention. Keys are sources, queries are sinks, <phi(q_i), phi(k_j)> with phi = sigmoid
    is the capacity between them. Per head (equations 4 to 8),

        I_i = <phi(q_i), sum_j phi(k_j)>             the flow into sink i
        O_j = <phi(k_j), sum_i phi(q_i)>             the flow out of source j
        I'_i = <phi(q_i), sum_j phi(k_j) / O_j>      into i, if every source gives one
        O'_j = <phi(k_j), sum_i phi(q_i) / I_i>      out of j, if every sink takes one
        c_j = M softmax_j(O'_j)                      competition of the sources
        o_i = sigmoid(I'_i N / M) sum_j <phi(q_i), phi(k_j)> / I_i c_j v_j

    with N queries and M keys, and O' kept within [-1, 1]. With causal=True all sums run up to the
    position they are used at, which has n valid positions up to it; 1 / O and 1 / I are n times,
    and I' and O' are 1 / n times as large, N / M is one, and c_i = n exp(O'_i) / sum_{j <= i}
    exp(O'_j).

    N, M and n count valid positions. The published code adds 1e-6 to features and sums; those are
    positive, so there is nothing to guard here.
    """

    _sums = 7

    def cost(self, length: int, batch: int = 1) -> Terms:
        terms = super().cost(length, batch)
        return terms._replace(kept=terms.kept + batch * 2 * length * self.embed_dim)

    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        q, k = q.sigmoid(), k.sigmoid()
        if hidden_queries is not None:
            q = q.masked_fill(hidden_queries[:, :, None, None], 0.0)
        if hidden_keys is not None:
            k = k.masked_fill(hidden_keys[:, :, None, None], 0.0)
        into = inverse(inner_products(q, k.sum(1)))  # 1 / I (B, N, h)
        out_of = inverse(inner_products(k, q.sum(1)))  # 1 / O (B, M, h)
        sinks = inner_products(q, weighted_sums(k, out_of))
        sources = inner_products(k, weighted_sums(q, into)).clamp(-1.0, 1.0)
        n, m = _valid(q, hidden_queries), _valid(k, hidden_keys)
        competition = sources.exp()
        if hidden_keys is not None:
            competition = competition.masked_fill(hidden_keys.unsqueeze(-1), 0.0)
        competition = competition * (inverse(competition.sum(1, keepdim=True)) * m)
        scale = (sinks * (n / m.clamp(min=1.0))).sigmoid() * into
        right = k * competition.unsqueeze(-1)
        return Factors(q, right, weighted_sums(k, competition), scale)

    def _start(self, batch: int, width: int) -> FlowState:
        sums, seen = super()._start(batch, width)
        nothing = sums.keys  # never changed in place
        return FlowState(nothing, nothing, nothing, nothing, nothing[..., 0], sums, seen)

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: FlowState
    ) -> tuple[Tensor, FlowState]:
        dtype, wide = v.dtype, state.keys.dtype
        q, k = q.to(wide).sigmoid(), k.to(wide).sigmoid()
        q, k = hide(q, ignore), hide(k, ignore)
        n = state.seen.unsqueeze(-1) + positions(q.transpose(1, 2), ignore)
        n = n.clamp(min=1).to(wide).unsqueeze(1)  # (B, 1, N)
        keys, queries = _running(k, state.keys), _running(q, state.queries)
        into = inverse((q * keys).sum(-1))  # 1 / I (B, h, N)
        out_of = inverse((k * queries).sum(-1))
        keys_by_flow = _running(k * (out_of * n).unsqueeze(-1), state.keys_by_flow)
        queries_by_flow = _running(q * (into * n).unsqueeze(-1), state.queries_by_flow)
        sinks = (q * keys_by_flow).sum(-1) / n
        competition = ((k * queries_by_flow).sum(-1) / n).clamp(-1.0, 1.0).exp()
        if ignore is not None:
            competition = competition.masked_fill(ignore.unsqueeze(1), 0.0)
        competitors = competition.cumsum(-1) + state.competition.unsqueeze(-1)
        right = k * (competition * inverse(competitors) * n).unsqueeze(-1)
        heads, _, sums = causal_scan(q, right, v.to(wide), state.sums)
        heads = heads * (into * sinks.sigmoid()).unsqueeze(-1)
        # copies: views would keep all positions alive as long as the state
        after = FlowState(
            keys[:, :, -1].clone(), queries[:, :, -1].clone(), keys_by_flow[:, :, -1].clone(),
            queries_by_flow[:, :, -1].clone(), competitors[..., -1].clone(), sums,
            count(state.seen, v, ignore),
        )  # fmt: skip
        return heads.to(dtype), after


def _running(rows: Tensor, before: Tensor) -> Tensor:
    """Sums of rows (B, h, N, p) up to every position, on top of those before (B, h, p)."""
    return rows.cumsum(2) + before.unsqueeze(2)


def _valid(rows: Tensor, hidden: Tensor | None) -> Tensor:
    """How many of rows (B, N, ...) are valid: (B, 1, 1), in the type of the rows, or one number."""
    if hidden is None:
        return rows.new_full((1, 1, 1), rows.shape[1])
    return (~hidden).sum(1)[:, None, None].to(rows.dtype)
