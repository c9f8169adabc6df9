"""Attentions whose matrix is a product of two thin ones: never formed, folded into the weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.scan import Sums, causal_scan
from ..theory.factors import DenseKernel, Kernel, KernelFactors
from ..theory.precision import widen, without_autocast
from .base import Streaming, check_batch
from .cost import Terms
from .inputs import Sequences
from .projected import UndroppedAttention, hide, silence, sources
from .summary import KeptSums, Summary, expect_summary

# What one number of a copy costs, in multiply-adds of a matrix product.
_COPY = 40


class Factors(NamedTuple):
    """K = diag(scale) left right^T by head: left (B, N, h, m), right (B, M, h, m), total (B, h, m),
    the sum of the rows of right, and scale (B, N, h), None where left has it already."""

    left: Tensor
    right: Tensor
    total: Tensor
    scale: Tensor | None = None


class LinearState(NamedTuple):
    """sums: of features and values so far; seen: (B,), valid positions so far."""

    sums: Sums
    seen: Tensor

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, logs: Tensor | None = None
    ) -> tuple[Tensor, LinearState]:
        """`causal_scan` from here on, of features q, k (B, h, N, m) and v (B, h, N, c), divided by
        its row sums; and the next state."""
        heads, rows, sums = causal_scan(q, k, v, self.sums, logs)
        seen = count(self.seen, v, ignore)
        return heads * inverse(rows).unsqueeze(-1), LinearState(sums, seen)


class FactoredAttention(Streaming, UndroppedAttention):
    """o = diag(scale) left (right^T v) per head, so the cost is linear in the lengths.

    A subclass writes `_factors`, without causality, and `_advance`, with it.

    Neither values nor heads need to be formed. With V = Y W_v^T + 1 b_v^T, and the output W_o,

        out = b_o + sum_h diag(scale_h) left_h A_h
        A_h = (right_h^T Y W_v,h^T + total_h b_v,h^T) W_o,h^T

    so that all products over the positions are of whole rows (B, N, d), which are in memory as a
    matrix product wants them; a single head is not, and would be copied. The small products with
    W_v and W_o cost as much as 2 p positions, p = embed_dim / num_heads, so short sequences take
    the plain order, and so do features that are many times wider than a head.
    """

    _sums: ClassVar[int] = 1  # over positions, for every position: the normaliser
    _weighted: ClassVar[bool] = False  # keys of a stream have logarithmic weights

    def init_state(self, batch_size: int) -> Any:
        """The state of a stream before its first token; causal layers only. Its size does not
        depend on the context."""
        self._expect_causal("init_state")
        return self._start(batch_size, self.head_dim)

    def _continue(self, call: Sequences, values: Tensor, state: Any) -> tuple[Tensor, Any]:
        check_batch(len(state.seen), call.x.shape[0])
        projected = self._project(call, values)
        with in_range(*projected) as (q, k, v):
            heads, state = self._advance(q, k, v, call.ignore, state)
        return self._output(heads.to(projected[0].dtype), call), state

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> Kernel:
        """The attention matrix (B, h, N, M): as factors, formed only where causal."""
        call, values = self._arrange(query, key, None, key_padding_mask)
        q, k, _ = self._project(call, values)
        if self.causal:
            return DenseKernel(self._weights(q, k, call))
        left, right, scale = self._by_head(q, k, call)
        return KernelFactors(silence(_scaled(left, scale), call), right)

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs, in the order that `_folds` takes."""
        rows, d, m, heads = batch * length, self.embed_dim, self._width, self.num_heads
        flops, kept, working = self._projection_cost(rows)
        wide = heads * m
        if self._folds(2 * length):
            flops = rows * 4 * d * (d + wide) + batch * 4 * wide * self.head_dim * d
            kept, working = rows * d, rows * 2 * d
        else:
            flops += rows * 4 * m * d
        flops += self._sums * rows * 2 * wide * heads
        features = rows * (3 * wide + 3 * heads)
        return Terms(flops, kept + features, working + features)

    # -- what a subclass writes -------------------------------------------------------------------

    @property
    def _width(self) -> int:
        """The width m of the factors of a head."""
        return self.head_dim

    @abstractmethod
    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        """The factors of q (B, N, h, p) and k (B, M, h, p); ignored keys have zero rows."""

    @abstractmethod
    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: Any
    ) -> tuple[Tensor, Any]:
        """q, k (B, h, N, p), v (B, h, N, c) after a state: heads (B, h, N, c) and the next one."""

    def _start(self, batch: int, width: int) -> Any:
        """The state before the first token, for values of some width; has a field seen (B,)."""
        weight, shape = self.in_proj_weight, (batch, self.num_heads, self._width, width)
        seen = torch.zeros(batch, dtype=torch.long, device=weight.device)
        return LinearState(Sums.zero(weight, shape, weighted=self._weighted), seen)

    def _key_features(self, k: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The features (B, M, h, m) of keys (B, M, h, p), zero where hidden (B, M), of a mechanism
        whose summary is "constant", and the logarithm (B, h) of a factor that they want."""
        raise NotImplementedError(f"{type(self).__name__} has no features of keys alone")

    def _query_features(self, q: Tensor) -> Tensor:
        """The features (B, N, h, m) of queries (B, N, h, p), of such a mechanism."""
        raise NotImplementedError(f"{type(self).__name__} has no features of queries alone")

    # -- a context, summed up --------------------------------------------------------------------

    def _summarise(self, call: Sequences, count: Tensor) -> Summary:
        """sum_j f(k_j) v_j^T (B, h, m, p), and sum_j f(k_j) (B, h, m)."""
        if self.summary != "constant":
            return super()._summarise(call, count)
        y, d = hide(call.y, call.ignore), self.embed_dim
        k, v = self._linear(y, d, 2 * d), self._linear(y, 2 * d, 3 * d)
        right, scale = self._key_features(_by_position(self, k), call.ignore)
        right, v = widen(right), widen(self._heads(v))
        sums = right.transpose(1, 2).mT @ v
        return KeptSums(count, call.batched, (sums, right.sum(1)), scale)

    def _attend_to(self, call: Sequences, summary: Summary) -> Tensor:
        if self.summary != "constant":
            return super()._attend_to(call, summary)
        kept = expect_summary(summary, KeptSums, len(call.x), call.batched)
        sums, total = kept.sums
        q = _by_position(self, self._linear(call.x, 0, self.embed_dim))
        left = widen(self._query_features(q)).transpose(1, 2).to(sums.dtype)  # (B, h, N, m)
        heads = (left @ sums) * inverse((left * total.unsqueeze(2)).sum(-1)).unsqueeze(-1)
        out: Tensor = self.out_proj(heads.to(q.dtype).transpose(1, 2).flatten(2))
        return out

    # -- the product ------------------------------------------------------------------------------

    def _attend(self, call: Sequences, values: Tensor) -> Tensor:
        if not self.causal and self._folds(call.x.shape[1] + call.y.shape[1]):
            return silence(self._folded(call, values), call)
        projected = self._project(call, values)
        with in_range(*projected) as (q, k, v):
            if self.causal:
                heads = self._mix(q, k, v, call.ignore)
            else:
                left, right, scale = self._by_head(q, k, call)
                heads = _scaled(left @ (right.mT @ v), scale)
        return self._output(heads.to(projected[0].dtype), call)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        """The causal form."""
        heads, _ = self._advance(q, k, v, ignore, self._start(q.shape[0], v.shape[-1]))
        return heads

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        if self.causal:
            return super()._weights(q, k, call)
        with in_range(q, k) as (wide_q, wide_k):
            left, right, scale = self._by_head(wide_q, wide_k, call)
            return (silence(_scaled(left, scale), call) @ right.mT).to(q.dtype)

    def _by_head(
        self, q: Tensor, k: Tensor, call: Sequences
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """left (B, h, N, m), right (B, h, M, m), scale (B, h, N)."""
        left, right, _, scale = self._factors_of(q.transpose(1, 2), k.transpose(1, 2), call)
        return left.transpose(1, 2), right.transpose(1, 2), None if scale is None else scale.mT

    def _factors_of(self, q: Tensor, k: Tensor, call: Sequences) -> Factors:
        return self._factors(q, k, call.ignore if call.is_self else None, call.ignore)

    def _folds(self, positions: int) -> bool:
        """Whether the folded order is the cheaper one, for so many positions of queries and keys:
        its products against products and copies."""
        wide, plain = self.num_heads * self._width, self.embed_dim + self._width + _COPY
        if torch.compiler.is_compiling():  # a graph for any length: as for long sequences
            return wide < plain
        return wide * (positions + 2 * self.head_dim) < plain * positions

    def _folded(self, call: Sequences, values: Tensor) -> Tensor:
        x, y, z = sources(call, values)
        d, heads = self.embed_dim, (self.num_heads, self.head_dim)
        weight, bias = self._in_projection()
        w_qk, w_v = weight.split([2 * d, d])
        b_qk, b_v = (None, None) if bias is None else bias.split([2 * d, d])
        if x is y:
            q, k = F.linear(x, w_qk, b_qk).chunk(2, -1)
        else:
            (w_q, w_k), (b_q, b_k) = w_qk.chunk(2), (None, None) if b_qk is None else b_qk.chunk(2)
            q, k = F.linear(x, w_q, b_q), F.linear(y, w_k, b_k)
        q, k = q.unflatten(-1, heads), k.unflatten(-1, heads)
        w_o, b_o, dtype = self.out_proj.weight, self.out_proj.bias, q.dtype
        with in_range(q, k, z, w_v, w_o, b_v, b_o) as (q, k, z, w_v, w_o, b_v, b_o):
            left, right, total, scale = self._factors_of(q, k, call)
            pooled = right.flatten(2).mT @ z  # (B, h m, d)
            sums = pooled.unflatten(1, (self.num_heads, -1)) @ w_v.unflatten(0, heads).mT
            if b_v is not None:  # (B, h, m, p)
                sums = sums + total.unsqueeze(-1) * b_v.unflatten(0, heads).unsqueeze(1)
            out = sums @ w_o.mT.unflatten(0, heads)  # (B, h, m, d)
            rows, out = _scaled(left, scale).flatten(2), out.flatten(1, 2)
            if b_o is None:
                made = rows @ out
            else:
                made = torch.baddbmm(b_o.expand(rows.shape[0], 1, d), rows, out)
        result: Tensor = made.to(dtype)
        return result


def _by_position(layer: FactoredAttention, rows: Tensor) -> Tensor:
    """Rows (B, N, d) as (B, N, h, p)."""
    heads: Tensor = rows.unflatten(-1, (layer.num_heads, layer.head_dim))
    return heads


@contextmanager
def in_range(first: Tensor, *others: Any) -> Iterator[tuple[Any, ...]]:
    """Tensors as they are; in float32 and without autocast where the first is in float16, whose
    range sums over positions leave."""
    if first.dtype != torch.float16:
        yield first, *others
        return
    with without_autocast(first.device):
        yield tuple(None if t is None else widen(t) for t in (first, *others))


def count(seen: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
    """The valid positions after v (B, h, N, c), of which some are ignored: (B,)."""
    return seen + (v.shape[2] if ignore is None else (~ignore).sum(-1))


def inner_products(rows: Tensor, vectors: Tensor) -> Tensor:
    """<rows_i, vector> for rows (B, N, h, m) and vectors (B, h, m), or c of them (B, h, m, c):
    (B, N, h) or (B, N, h, c). One product, whose second factor (B, h m, h c) is block diagonal,
    for all heads: rows stay as they are."""
    columns = vectors if vectors.dim() == 4 else vectors.unsqueeze(-1)
    heads, width = columns.shape[1], columns.shape[-1]
    diagonal = torch.eye(heads, dtype=columns.dtype, device=columns.device)
    blocks = columns.unsqueeze(3) * diagonal[:, None, :, None]  # (B, h, m, h, c)
    products = rows.flatten(2) @ blocks.flatten(3).flatten(1, 2)
    by_head: Tensor = products.unflatten(-1, (heads, width))
    return by_head if vectors.dim() == 4 else by_head.squeeze(-1)


def weighted_sums(rows: Tensor, weights: Tensor) -> Tensor:
    """sum_i w_i rows_i for rows (B, N, h, m) and weights (B, N, h): (B, h, m), by one product."""
    all_pairs = rows.flatten(2).mT @ weights  # (B, h m, h): of every head with every weight
    by_head: Tensor = all_pairs.unflatten(1, rows.shape[2:])
    return by_head.diagonal(dim1=1, dim2=3).mT


def inverse(sums: Tensor) -> Tensor:
    """1 / sums, and 1 where there is nothing to divide: zero, or so little that 1 / sums^2, its
    derivative, would not be finite."""
    wide = widen(sums)
    least = max(torch.finfo(wide.dtype).tiny ** 0.5, 1 / torch.finfo(sums.dtype).max)
    return wide.masked_fill(wide <= least, 1.0).reciprocal().to(sums.dtype)


def _scaled(rows: Tensor, scale: Tensor | None) -> Tensor:
    return rows if scale is None else rows * scale.unsqueeze(-1)
