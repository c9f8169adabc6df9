"""The mechanisms of the registry between heads that another module has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.dropped_softmax import softmax_attention
from ..theory.precision import widen
from .base import Attention, Streaming
from .cost import Terms
from .factored import FactoredAttention, in_range
from .linear import LinearAttention
from .linformer import LinformerAttention
from .projected import MixingAttention, hide
from .sinkhorn import SinkhornAttention
from .softmax import SoftmaxAttention, SoftmaxState
from .yoso import YosoAttention


class HeadsAttention(nn.Module):
    """`o = mix(q, k, v)` per head, by a layer of the registry without its projections.

    A layer of another library makes its queries, keys and values as it always did, and takes its
    heads from here.
    """

    def __init__(self, layer: Attention) -> None:
        super().__init__()
        if isinstance(layer, LinformerAttention):
            raise ValueError(
                "attention is 'linformer', which shortens the inputs before they are projected; "
                "expected one that works on queries, keys and values"
            )
        if isinstance(layer, LinearAttention) and layer.feature_map is not None:
            raise ValueError("feature_map is given to 'linear'; expected None, the paper's own")
        if not isinstance(layer, MixingAttention | SoftmaxAttention):
            raise ValueError(f"{type(layer).__name__} mixes no heads; expected another attention")
        self.num_heads, self.head_dim = layer.num_heads, layer.head_dim
        self.causal = layer.causal
        self.layer = _without_projections(layer)

    @property
    def streams(self) -> bool:
        """Whether a causal call can continue from a state."""
        return isinstance(self.layer, Streaming)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        ignore: Tensor | None = None,
        state: Any = None,
        *,
        cross: bool = False,
    ) -> tuple[Tensor, Any]:
        """query (B, h, N, p), key and value (B, h, M, p); ignore (B, M), True = ignore.

        Returns the heads (B, h, N, p), and where a causal layer streams the state after them.
        """
        layer: Any = self.layer
        if cross and not layer.has_cross:
            raise ValueError(f"{type(layer).__name__} is given two sequences; expected one")
        key, value = hide(key, ignore), hide(value, ignore)
        if isinstance(layer, SoftmaxAttention):
            return _softmax(layer, query, key, value, ignore, state)
        if isinstance(layer, FactoredAttention):
            with in_range(query, key, value) as (q, k, v):  # sums over positions leave float16
                heads, state = _factored(layer, q, k, v, ignore, state, cross=cross)
            return heads.to(query.dtype), state
        if layer.parts == 2:  # the keys are the queries
            query = key
        if isinstance(layer, SinkhornAttention):
            return layer.transport(query, key, value, None if cross else ignore, ignore), state
        mixed = layer._mix(query, key, value, ignore)
        if isinstance(layer, YosoAttention):
            mixed = F.normalize(widen(mixed), dim=-1).to(mixed.dtype)
        return mixed, state

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs, as if the heads were projected from their own width."""
        terms: Terms = self.layer.cost(length, batch)  # type: ignore[operator]
        return terms


def _factored(
    layer: FactoredAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ignore: Tensor | None,
    state: Any,
    *,
    cross: bool,
) -> tuple[Tensor, Any]:
    if layer.causal:
        start = layer._start(query.shape[0], value.shape[-1]) if state is None else state
        advanced: tuple[Tensor, Any] = layer._advance(query, key, value, ignore, start)
        return advanced
    hidden = None if cross else ignore
    left, right, _, scale = layer._factors(
        query.transpose(1, 2), key.transpose(1, 2), hidden, ignore
    )
    left = left if scale is None else left * scale.unsqueeze(-1)
    return left.transpose(1, 2) @ (right.permute(0, 2, 3, 1) @ value), None


def _softmax(
    layer: SoftmaxAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ignore: Tensor | None,
    state: SoftmaxState | None,
) -> tuple[Tensor, SoftmaxState | None]:
    past = 0
    if state is not None:
        past = state.length
        if state.ignore is not None or ignore is not None:
            before = key.new_zeros(key.shape[0], past, dtype=torch.bool)
            now = key.new_zeros(key.shape[0], key.shape[2], dtype=torch.bool)
            parts = (
                before if state.ignore is None else state.ignore,
                now if ignore is None else ignore,
            )
            ignore = torch.cat(parts, 1)
        key, value = torch.cat([state.keys, key], 2), torch.cat([state.values, value], 2)
    mask = None if ignore is None else ~ignore[:, None, None]
    if layer.causal:
        shape = (query.shape[2], key.shape[2])
        triangle = torch.ones(shape, dtype=torch.bool, device=query.device).tril(past)
        mask = triangle if mask is None else mask & triangle
    if mask is not None:  # a query without any key looks at all: its row has no meaning
        mask = mask | ~mask.any(-1, keepdim=True)
    dropout = layer.dropout if layer.training else 0.0
    heads = softmax_attention(query, key, value, mask=mask, dropout=dropout)
    return heads, SoftmaxState(key, value, ignore) if layer.causal else None


def _without_projections(layer: Attention) -> Attention:
    """What is left knows its type and device by an empty weight."""
    weight = layer.in_proj_weight
    for name in ("in_proj_weight", "in_proj_bias", "out_proj"):
        delattr(layer, name)
    layer.register_buffer("in_proj_weight", weight.detach().new_empty(0), persistent=False)
    return layer
