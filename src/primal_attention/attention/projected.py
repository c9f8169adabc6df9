"""Queries, keys and values by one projection, mixed by the mechanism, and an output projection."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..theory.factors import DenseKernel, Kernel
from .base import Attention
from .cost import Terms
from .inputs import Sequences
from .masks import check_attention_mask
from .rotation import Rotation


class ProjectedAttention(Attention):
    """The projections of the mechanisms with values: those of nn.MultiheadAttention, under the same
    names. Ignored positions may hold anything, NaN included: their rows are zeroed before."""

    parts: ClassVar[int] = 3  # of in_proj_weight: W_q, W_k, W_v; 2 where keys are the queries

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, dropout=dropout, batch_first=batch_first
        )

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.in_proj_weight = new(self.parts * embed_dim, embed_dim)
        self.in_proj_bias = new(self.parts * embed_dim) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        ProjectedAttention.reset_parameters(self)  # a subclass has not made all of its own yet

    def reset_parameters(self) -> None:
        """As nn.MultiheadAttention: Xavier over W_q, W_k, W_v together, biases zero."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def _project(self, call: Sequences, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, N, p), k and v (B, h, M, p); one product where the sequences are one."""
        x, y, z = sources(call, values)
        d = self.embed_dim
        if self.parts == 2:
            if z is x:
                q, v = self._linear(x, 0, 2 * d).chunk(2, dim=-1)
            else:
                q, v = self._linear(x, 0, d), self._linear(z, d, 2 * d)
            heads = self._heads(q)
            return heads, heads, self._heads(v)
        if x is y and z is y:
            q, k, v = self._linear(x, 0, 3 * d).chunk(3, dim=-1)
        elif z is y:
            q = self._linear(x, 0, d)
            k, v = self._linear(y, d, 3 * d).chunk(2, dim=-1)
        else:
            q = self._linear(x, 0, d)
            k = self._linear(y, d, 2 * d)
            v = self._linear(z, 2 * d, 3 * d)
        return self._heads(q), self._heads(k), self._heads(v)

    def _projection_cost(self, rows: int) -> Terms:
        """What the projections cost, of so many positions; a normaliser of every head is kept."""
        d, parts = self.embed_dim, self.parts
        kept = rows * ((parts + 2) * d + self.num_heads)
        return Terms(rows * 2 * (parts + 1) * d**2, kept, rows * (parts + 3) * d)

    def _in_projection(self) -> tuple[Tensor, Tensor | None]:
        """The maps that make queries, keys and values."""
        return self.in_proj_weight, self.in_proj_bias

    def _linear(self, rows: Tensor, first: int, last: int) -> Tensor:
        weight, bias = self._in_projection()
        return F.linear(rows, weight[first:last], None if bias is None else bias[first:last])

    def _heads(self, rows: Tensor) -> Tensor:
        heads: Tensor = rows.unflatten(-1, (self.num_heads, self.head_dim))  # (B, N, h, p)
        return heads.transpose(1, 2)


class MixingAttention(ProjectedAttention):
    """Per head, `o = mix(q, k, v)`; a subclass writes `_mix`. Here is the rest: the check of the
    call, projections, masks, the matrix on demand. In self-attention the outputs of ignored
    positions are zero; so are those of a sample without any key.
    """

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
        with need_weights, the matrix (B, N, M) that the mechanism stands for, or (B, h, N, M)
        without the average. The matrix is formed only when asked for.

        key_padding_mask (B, M): True or -inf marks keys to ignore. attn_mask and is_causal may only
        say what the layer does anyway. rotation: by times, where `has_rotation`.
        """
        call, values = self._arrange(query, key, value, key_padding_mask, rotation)
        shape = self._mask_shape(call)
        check_attention_mask(attn_mask, is_causal, causal=self.causal, shape=shape)
        out = self._attend(call, values)
        if not need_weights:
            return call.restore(out), None
        q, k, _ = self._project(call, values)
        weights = self._weights(q, k, call)
        weights = weights.mean(1) if average_attn_weights else weights
        return call.restore(out), weights if call.batched else weights.squeeze(0)

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> Kernel:
        """The attention matrix (B, h, N, M), formed."""
        call, values = self._arrange(query, key, None, key_padding_mask)
        q, k, _ = self._project(call, values)
        return DenseKernel(self._weights(q, k, call))

    @abstractmethod
    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        """The mechanism: q (B, h, N, p), k (B, h, M, p), v (B, h, M, c) with any width c, and the
        keys to ignore (B, M); returns (B, h, N, c), linear in v. Rows of ignored queries and of
        samples without any key may hold any finite number: they are zeroed afterwards."""

    def _attend(self, call: Sequences, values: Tensor) -> Tensor:
        """The output rows (B, N, d) of a checked call."""
        q, k, v = self._project(call, values)
        return self._output(self._mix(q, k, v, call.ignore), call)

    def _output(self, heads: Tensor, call: Sequences) -> Tensor:
        """Heads (B, h, N, p) to rows (B, N, d), zero where the query is ignored or has no key."""
        return silence(self.out_proj(heads.transpose(1, 2).flatten(2)), call)

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        """The matrix (B, h, N, M): the mechanism is linear in the values, so mix the identity."""
        keys, training = k.shape[2], self.training
        identity = torch.eye(keys, dtype=q.dtype, device=q.device).expand(*k.shape[:3], keys)
        self.training = False  # the matrix is that before dropout
        try:
            weights = self._mix(q, k, identity, call.ignore)
        finally:
            self.training = training
        return silence(weights, call)


class UndroppedAttention(MixingAttention):
    """A mechanism without entries that could be dropped, so without the option dropout."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool = False,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip


def sources(call: Sequences, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What queries, keys and values are projected from, ignored rows zeroed: one tensor where the
    sequences are one."""
    y = hide(call.y, call.ignore)
    return y if call.is_self else call.x, y, y if values is call.y else hide(values, call.ignore)


def hide(rows: Tensor, ignore: Tensor | None) -> Tensor:
    """Zero the ignored rows (B, M, c) or (B, h, M, c): a NaN times a zero weight would be NaN."""
    if ignore is None:
        return rows
    return rows.masked_fill((ignore if rows.dim() == 3 else ignore[:, None]).unsqueeze(-1), 0.0)


def silence(rows: Tensor, call: Sequences) -> Tensor:
    """Rows (B, N, c) or (B, h, N, c), zero where the query is ignored or has no key."""
    if call.ignore is None or call.is_self:
        return hide(rows, call.ignore)
    return hide(rows, call.ignore.all(-1, keepdim=True))
