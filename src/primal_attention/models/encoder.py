"""The Transformer encoder around any attention of the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Unpack

from torch import Tensor, nn

from .dropout import Dropout
from .feedforward import FeedForward
from .options import Place
from .packing import Packing

Norm = Literal["post", "pre"]
Activation = Literal["gelu", "relu"]


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each with dropout, a residual and a LayerNorm: after the sum
    (norm="post", the paper's) or before the part (norm="pre")."""

    def __init__(
        self,
        attention: nn.Module,
        feedforward: FeedForward,
        width: int,
        *,
        dropout: float,
        norm: Norm,
        **place: Unpack[Place],
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention = attention
        self.feedforward = feedforward
        self.norm_attention = nn.LayerNorm(width, **place)
        self.norm_feedforward = nn.LayerNorm(width, **place)
        self.dropout = Dropout(dropout)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            out, _ = self.attention(packing.unpack(x), key_padding_mask=packing.padding)
            return packing.pack(out)

        rows = self._residual(rows, attend, self.norm_attention)
        return self._residual(rows, self.feedforward, self.norm_feedforward)

    def _residual(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        if self.norm == "pre":
            return self.dropout.add(x, part(norm(x)))
        out: Tensor = norm(self.dropout.add(x, part(x)))
        return out


class Encoder(nn.Module):
    """Layers in turn; with norm="pre" a last LayerNorm, since nothing has normed their sum."""

    def __init__(self, layers: Sequence[EncoderLayer], width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        pre = any(layer.norm == "pre" for layer in layers)
        self.last_norm = nn.LayerNorm(width, **place) if pre else nn.Identity()

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            rows = layer(rows, packing)
        out: Tensor = self.last_norm(rows)
        return out
