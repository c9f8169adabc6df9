"""Softmax attention: the quadratic mechanism that the others are measured against."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.dropped_softmax import softmax_attention
from ..theory.factors import DenseKernel
from .base import Streaming, check_batch
from .cost import Terms
from .inputs import Sequences
from .masks import expect_tensor
from .projected import ProjectedAttention, hide
from .registry import register
from .rotation import Rotation
from .summary import KeptRows, Summary, expect_summary

__all__ = ["SoftmaxAttention", "SoftmaxState"]


class SoftmaxState(NamedTuple):
    """The context of a stream: keys and values (B, h, M, p), and which of the M positions to ignore
    (B, M), None if all count. It grows with the context, so a token costs O(M)."""

    keys: Tensor
    values: Tensor
    ignore: Tensor | None

    @property
    def length(self) -> int:
        return self.keys.shape[2]


class Visibility(NamedTuple):
    """Who sees whom, each broadcastable to (B, h, N, M).

    mask is for the scores, bool (True = visible) or float (added). blind (..., N or 1, 1) marks
    queries without a visible key: the mask lets them see everything, since a softmax over nothing
    has no gradient, and their rows are zeroed afterwards. triangle stands for the causal mask,
    where it is the only one and need not be formed.
    """

    mask: Tensor | None = None
    blind: Tensor | None = None
    triangle: bool = False


@register("softmax", paper="Vaswani et al.: Attention Is All You Need, NeurIPS 2017", cost="O(N^2)")
class SoftmaxAttention(Streaming, ProjectedAttention):
    """Scaled dot-product attention. Per head (width p = embed_dim / num_heads),

        K_ij = softmax_j(<q(x_i), k(y_j)> / sqrt(p))    o(x_i) = sum_j K_ij v(y_j)

    then heads are concatenated and projected. The parameters are those of nn.MultiheadAttention,
    under the same names, so a state_dict of one loads into the other.

    Unlike nn.MultiheadAttention: a query that sees no key gives a zero row, not NaN; in
    self-attention ignored positions give zero rows; and what stands in an ignored position, be it
    NaN, reaches neither the output nor a gradient.
    """

    has_pair_masks = True
    has_rotation = True

    # -- calls -----------------------------------------------------------------------------------

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from query (B, N, d) to key and value (B, M, d); returns the output (B, N, d) and,
        with need_weights, the matrix K before dropout (B, N, M), or (B, h, N, M) without the
        average.

        key_padding_mask (B, M): True or -inf marks keys to ignore. attn_mask (N, M) or
        (B * h, N, M): True marks pairs to hide; a float mask is added to the scores. is_causal
        hides key j from query i < j on top of attn_mask, in a layer with causal=False too. In
        self-attention ignored positions give zero rows; so do queries without any visible key.
        rotation turns queries and keys by their times, in self-attention.
        """
        call, values = self._arrange(query, key, value, key_padding_mask, rotation)
        q, k, v = self._project(call, values)
        pairs = _attention_mask(attn_mask, q, k)
        causal = self.causal or is_causal
        seen = _visibility(q, k, call.ignore, pairs, causal, form=need_weights)
        ignored_queries = call.ignore if call.is_self else None
        if not need_weights:
            return call.restore(self._attend(q, k, v, seen, ignored_queries)), None
        weights = _weights(q, k, seen, ignored_queries)
        heads = F.dropout(weights, self.dropout, self.training) @ v.to(weights.dtype)
        out = self._output(heads, seen.blind, ignored_queries)
        weights = weights.mean(1) if average_attn_weights else weights
        return call.restore(out), weights if call.batched else weights.squeeze(0)

    def init_state(self, batch_size: int) -> SoftmaxState:
        """The state of a stream before its first token; causal layers only."""
        self._expect_causal("init_state")
        nothing = self.in_proj_weight.new_zeros(batch_size, self.num_heads, 0, self.head_dim)
        return SoftmaxState(nothing, nothing, None)

    def _continue(
        self, call: Sequences, values: Tensor, state: SoftmaxState
    ) -> tuple[Tensor, SoftmaxState]:
        check_batch(len(state.keys), call.x.shape[0])
        q, k, v = self._project(call, values)
        after = SoftmaxState(
            torch.cat([state.keys.to(k.dtype), k], 2),
            torch.cat([state.values.to(v.dtype), v], 2),
            _join(state, call),
        )
        seen = _visibility(q, after.keys, after.ignore, None, True, past=state.length)
        return self._attend(q, after.keys, after.values, seen, call.ignore), after

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> DenseKernel:
        """The attention matrix K (B, h, N, M), formed: a softmax has no small factors."""
        call, values = self._arrange(query, key, None, key_padding_mask)
        q, k, _ = self._project(call, values)
        seen = _visibility(q, k, call.ignore, None, self.causal, form=True)
        return DenseKernel(_weights(q, k, seen, call.ignore if call.is_self else None))

    def cost(self, length: int, batch: int = 1, *, matrix: bool = False) -> Terms:
        """What one call costs. Fused kernels do not form the N x N matrix; `matrix` is the case
        that does (masks of pairs, weights asked for, attention written out)."""
        _, kept, working = self._projection_cost(batch * length)
        formed = 2 * batch * self.num_heads * length**2 if matrix else 0
        flops = batch * softmax_flops(length, self.embed_dim, self.embed_dim)
        return Terms(flops, kept + formed, working + formed)

    # -- parts -----------------------------------------------------------------------------------

    def _project(self, call: Sequences, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super()._project(call, values)
        if call.rotation is None:
            return q, k, v
        return call.rotation.turn(q), call.rotation.turn(k), v

    def _summarise(self, call: Sequences, count: Tensor) -> KeptRows:
        """Keys and values (B, h, M, p): what a cache holds."""
        y = hide(call.y, call.ignore)
        k, v = self._linear(y, self.embed_dim, 3 * self.embed_dim).chunk(2, dim=-1)
        return KeptRows(count, call.batched, (self._heads(k), self._heads(v)), call.ignore)

    def _attend_to(self, call: Sequences, summary: Summary) -> Tensor:
        kept = expect_summary(summary, KeptRows, len(call.x), call.batched)
        q, (k, v) = self._heads(self._linear(call.x, 0, self.embed_dim)), kept.rows
        return self._attend(q, k, v, _visibility(q, k, kept.ignore, None, causal=False), None)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        seen: Visibility,
        ignored_queries: Tensor | None,
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        heads = softmax_attention(
            q, k, v, mask=seen.mask, triangle=seen.triangle, dropout=dropout
        )  # (B, h, N, p)
        return self._output(heads, seen.blind, ignored_queries)

    def _output(
        self, heads: Tensor, blind: Tensor | None, ignored_queries: Tensor | None
    ) -> Tensor:
        if blind is not None and blind.shape[1] > 1:  # a mask for each head may blind only some
            heads = heads.masked_fill(blind, 0.0)
        out: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))  # (B, N, d)
        if blind is not None:
            out = out.masked_fill(blind.all(1), 0.0)
        if ignored_queries is not None:
            out = out.masked_fill(ignored_queries.unsqueeze(-1), 0.0)
        return out


def softmax_flops(length: int, width: int, inner: int, groups: int = 1) -> int:
    """The products of one sequence: projections between `width` and the `inner` width of all heads,
    where `groups` query heads share a key head, then Q K^T and P V between all pairs."""
    return 4 * length * (inner * (width + length) + inner // groups * width)


def _attention_mask(attn_mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """attn_mask as (1, 1, N, M) or (B, h, N, M), checked, a float one in the type of the scores."""
    if attn_mask is None:
        return None
    expect_tensor("attn_mask", attn_mask, "(N, M) of torch.bool (True = hide)")
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeError(
            f"attn_mask has dtype {attn_mask.dtype}; expected torch.bool (True = hide) or a "
            "floating type (added to the scores)"
        )
    (batch, heads, queries), keys = q.shape[:3], k.shape[2]
    shape = tuple(attn_mask.shape)
    if shape not in ((queries, keys), (batch * heads, queries, keys)):
        raise ValueError(
            f"attn_mask has shape {shape}; expected ({queries}, {keys}) or (batch * num_heads = "
            f"{batch * heads}, {queries}, {keys})"
        )
    if attn_mask.is_floating_point():
        attn_mask = attn_mask.to(q.dtype)
    each = (batch, heads) if attn_mask.dim() == 3 else (1, 1)
    return attn_mask.reshape(*each, queries, keys)


def _visibility(
    q: Tensor,
    k: Tensor,
    ignore: Tensor | None,
    attn_mask: Tensor | None,
    causal: bool,
    *,
    past: int = 0,
    form: bool = False,
) -> Visibility:
    """All masks in one. Query i stands at position past + i; where causal it sees keys up to it.
    With form, the mask is formed even if the attention could do without."""
    queries, keys = q.shape[2], k.shape[2]
    bias = attn_mask if attn_mask is not None and attn_mask.is_floating_point() else None
    hidden = attn_mask if bias is None else bias == -torch.inf
    if ignore is not None:
        hidden = _either(hidden, ignore[:, None, None, :])
    # a padded or masked row may be empty, a causal one sees at least itself
    may_be_blind = hidden is not None
    if causal and past == 0 and hidden is None and not form:
        return Visibility(triangle=True)
    if causal and queries > 1:
        future = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(1 + past)
        hidden = _either(hidden, future[None, None])
    if hidden is None:
        return Visibility()
    blind = hidden.all(-1, keepdim=True) if may_be_blind else None
    if bias is None:
        return Visibility(~hidden if blind is None else ~hidden | blind, blind)
    mask = torch.where(hidden, -torch.inf, bias)
    return Visibility(mask if blind is None else mask.masked_fill(blind, 0.0), blind)


def _either(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first | second


def _weights(q: Tensor, k: Tensor, seen: Visibility, ignored_queries: Tensor | None) -> Tensor:
    """The attention matrix K (B, h, N, M), zero rows for queries that are ignored or blind."""
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if seen.mask is not None and seen.mask.dtype == torch.bool:
        scores = scores.masked_fill(~seen.mask, -torch.inf)
    elif seen.mask is not None:
        scores = scores + seen.mask
    weights: Tensor = scores.softmax(-1)
    if seen.blind is not None:
        weights = weights.masked_fill(seen.blind, 0.0)
    if ignored_queries is not None:
        weights = weights.masked_fill(ignored_queries[:, None, :, None], 0.0)
    return weights


def _join(before: SoftmaxState, call: Sequences) -> Tensor | None:
    """Which positions to ignore, of the past and of this call: (B, M) or None."""
    if before.ignore is None and call.ignore is None:
        return None
    past, now = before.ignore, call.ignore
    if past is None:
        past = before.keys.new_zeros(before.keys.shape[0], before.length, dtype=torch.bool)
    if now is None:
        now = call.x.new_zeros(call.x.shape[:2], dtype=torch.bool)
    return torch.cat([past, now], 1)
