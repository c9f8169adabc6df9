"""The Transformer encoder around any attention of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

from torch import Tensor, nn

from ..attention import make_attention
from .dropout import Dropout
from .feedforward import FeedForward
from .options import Place, attention_settings
from .packing import Packing

Norm = Literal["post", "pre", "post-last"]
Activation = Literal["gelu", "relu"]


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each with dropout, a residual and a LayerNorm: after the sum
    (norm="post") or before the part (norm="pre")."""

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
        turned = {} if packing.rotation is None else {"rotation": packing.rotation}

        def attend(x: Tensor) -> Tensor:
            out, _ = self.attention(packing.unpack(x), key_padding_mask=packing.padding, **turned)
            return packing.pack(out)

        rows = self._residual(rows, attend, self.norm_attention)
        return self._residual(rows, self.feedforward, self.norm_feedforward)

    def _residual(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        if self.norm == "pre":
            return self.dropout.add(x, part(norm(x)))
        out: Tensor = norm(self.dropout.add(x, part(x)))
        return out


class Encoder(nn.Module):
    """Layers in turn; with norm="pre" a last LayerNorm, since nothing has normed their sum, and
    with "post-last", the paper's, one more."""

    def __init__(self, layers: Sequence[EncoderLayer], width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        plain = all(layer.norm == "post" for layer in layers)
        self.last_norm = nn.Identity() if plain else nn.LayerNorm(width, **place)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            rows = layer(rows, packing)
        out: Tensor = self.last_norm(rows)
        return out


def make_encoder(
    names: Sequence[str],
    given: Mapping[str, Mapping[str, Any]] | None,
    *,
    width: int,
    heads: int,
    feedforward: int,
    activation: nn.GELU | nn.ReLU,
    dropout: float,
    norm: Norm,
    layer: type[EncoderLayer] = EncoderLayer,
    primal: Mapping[str, Any],
    settings: Mapping[str, Any],
    **place: Unpack[Place],
) -> Encoder:
    """A layer for each name of an attention. `given` are the options of each name, `primal` those
    of primal layers that do not say; `settings` are what the model knows, see
    `attention_settings`."""
    if isinstance(names, str) or not names:
        raise ValueError(f"attention is {names!r}; expected one name per layer")
    given = dict(given or {})
    if "primal" in names:
        given["primal"] = {**primal, **given.get("primal", {})}
    options = attention_settings(names, given, dropout=dropout, **settings, **place)
    layers = [
        layer(
            make_attention(name, width, heads, **own),
            FeedForward(width, feedforward, activation=activation, dropout=dropout, **place),
            width, dropout=dropout, norm=norm, **place,
        )
        for name, own in zip(names, options, strict=True)
    ]  # fmt: skip
    return Encoder(layers, width, **place)
