"""Sequence classification: time series or tokens, with an attention by name in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..attention.base import check_positive
from ..names import check_choice
from .dropout import Dropout
from .embedding import SeriesEmbedding, TokenEmbedding
from .encoder import Activation, Norm, make_encoder
from .heads import AttentionHead, FlattenHead, MeanHead, MLPHead
from .packing import Packing, pack
from .positions import LearnedPositions, SinusoidalPositions

PositionKind = Literal["learned", "sinusoidal", "none"]
HeadKind = Literal["mean", "flatten", "mlp", "attention"]
PaddingKind = Literal["ignored", "seen"]
PooledKind = Literal["valid", "padded"]
RANK = 20  # of primal layers whose options do not say


class SequenceClassifier(nn.Module):
    """Logits of whole sequences: embedding, positions, an encoder, and a head.

    Give `channels` for time series (B, N, channels) or `vocabulary` for tokens (B, N). `attention`
    names the attention of every layer, first layer first: PrimalFormer is all "primal",
    Primal.+Trans. is "softmax" with "primal" last. `attention_options` are those of each NAME, e.g.
    `{"primal": {"rank": 40}}`; the rank is 20 where they do not say. `dropout` goes to the
    attentions too, unless their options say otherwise, and an attention with anchors gets no more
    than `max_length` of them.

    A sequence gives the same logits alone and padded in a batch, wherever the padding stands: only
    its valid positions are seen, in their order. `head="mean"` averages over them; `"mlp"` has two
    layers after the mean; `"flatten"` is the paper's linear layer of all `max_length` positions at
    once; `"attention"` weighs the positions by a gated network, for bags without order. With
    `pairs` a case is two sequences, (B, 2, N) or (B, 2, N, channels), each encoded by itself and
    classified together by the head "mlp" from `[a, b, a * b, a - b]`.

    Two options give up that promise, as published models do: `padding="seen"` (time series) fills
    every sequence with zeros up to `max_length`, and the attentions see them as any other position;
    `pooled="padded"` divides the sum over the valid positions by `max_length`.
    """

    def __init__(
        self,
        *,
        classes: int,
        channels: int | None = None,
        vocabulary: int | None = None,
        max_length: int,
        attention: Sequence[str] = ("primal", "primal"),
        attention_options: Mapping[str, Mapping[str, Any]] | None = None,
        width: int = 512,
        heads: int = 8,
        feedforward: int = 2048,
        dropout: float = 0.1,
        norm: Norm = "post",
        activation: Activation = "gelu",
        positions: PositionKind = "learned",
        head: HeadKind = "mean",
        pairs: bool = False,
        padding: PaddingKind = "ignored",
        pooled: PooledKind = "valid",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(
            classes=classes, max_length=max_length, width=width, heads=heads,
            feedforward=feedforward,
        )  # fmt: skip
        check_choice("norm", norm, get_args(Norm))
        check_choice("activation", activation, get_args(Activation))
        check_choice("positions", positions, get_args(PositionKind))
        check_choice("head", head, get_args(HeadKind))
        check_choice("padding", padding, get_args(PaddingKind))
        check_choice("pooled", pooled, get_args(PooledKind))
        if padding == "seen" and channels is None:
            raise ValueError('padding is "seen"; expected "ignored" for tokens')
        if pairs and head != "mlp":
            raise ValueError(f"head is {head!r}; expected 'mlp', the one for pairs")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.max_length, self.channels, self.vocabulary = max_length, channels, vocabulary
        self.pairs, self.padding = pairs, padding
        length = max_length if pooled == "padded" else None
        self.embedding = _embedding(channels, vocabulary, width, **place)
        kinds = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}
        table = None if positions == "none" else kinds[positions](max_length, width, **place)
        self.positions = table
        self.dropout = Dropout(dropout)
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        self.encoder = make_encoder(
            attention, attention_options, width=width, heads=heads, feedforward=feedforward,
            activation=act, dropout=dropout, norm=norm, primal={"rank": RANK},
            settings={"max_length": max_length}, **place,
        )  # fmt: skip
        self.head: nn.Module
        if head == "mean":
            self.head = MeanHead(width, classes, length=length, **place)
        elif head == "mlp":
            self.head = MLPHead(
                width, classes, hidden=feedforward, pairs=pairs, length=length, **place
            )
        elif head == "attention":
            self.head = AttentionHead(width, classes, **place)
        else:
            self.head = FlattenHead(
                width, classes, max_length=max_length, activation=act, dropout=dropout, **place
            )

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """Logits (B, classes) of inputs (B, N, channels), or of tokens (B, N); of pairs (B, 2, N,
        channels) or (B, 2, N).

        padding (B, N) or (B, 2, N) bool: True marks positions to ignore. A sequence without any
        valid position gets the logits of an empty one.
        """
        if self.pairs:
            inputs, padding = _one_by_one(inputs, padding)
        self._check(inputs, padding)
        rows, packing = pack(inputs, padding)
        if packing.length > self.max_length:
            raise ValueError(
                f"a sequence has length {packing.length}; expected at most max_length = "
                f"{self.max_length}"
            )
        seen = packing  # what the encoder knows of the padding
        if self.padding == "seen":
            rows, packing = packing.padded(rows, self.max_length)
            seen = Packing(packing.batch, packing.length)
        rows = self.embedding(rows)
        if self.positions is not None:
            rows = self.positions(rows, seen)
        rows = self.encoder(self.dropout(rows), seen)
        logits: Tensor = self.head(rows, packing)
        return logits

    def _check(self, inputs: Tensor, padding: Tensor | None) -> None:
        if self.channels is None:
            if inputs.dim() != 2 or inputs.dtype not in (torch.int64, torch.int32):
                raise ValueError(
                    f"inputs is {_describe(inputs)}; expected tokens (batch, length), int64"
                )
        elif inputs.dim() != 3 or inputs.shape[-1] != self.channels or not self._accepts(inputs):
            raise ValueError(
                f"inputs is {_describe(inputs)}; expected (batch, length, channels = "
                f"{self.channels}) of {self.embedding.weight.dtype}"
            )
        if inputs.shape[1] == 0:
            raise ValueError(f"inputs is {_describe(inputs)}; expected at least one position")
        if padding is None:
            return
        if padding.shape != inputs.shape[:2] or padding.dtype != torch.bool:
            raise ValueError(
                f"padding is {_describe(padding)}; expected {tuple(inputs.shape[:2])}, torch.bool "
                "(True = ignore)"
            )

    def _accepts(self, inputs: Tensor) -> bool:
        autocast = torch.is_autocast_enabled(inputs.device.type) and inputs.is_floating_point()
        return inputs.dtype == self.embedding.weight.dtype or autocast


def _one_by_one(inputs: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The sequences of pairs below one another: 2i and 2i + 1 are pair i."""
    if inputs.dim() < 3 or inputs.shape[1] != 2:
        raise ValueError(
            f"inputs is {_describe(inputs)}; expected pairs of sequences, (batch, 2, length, ...)"
        )
    if padding is not None and padding.shape != inputs.shape[:3]:
        raise ValueError(
            f"padding is {_describe(padding)}; expected {tuple(inputs.shape[:3])}, torch.bool"
        )
    return inputs.flatten(0, 1), None if padding is None else padding.flatten(0, 1)


def _embedding(
    channels: int | None, vocabulary: int | None, width: int, **place: Any
) -> SeriesEmbedding | TokenEmbedding:
    if channels is not None and vocabulary is None:
        check_positive(channels=channels)
        return SeriesEmbedding(channels, width, **place)
    if vocabulary is not None and channels is None:
        check_positive(vocabulary=vocabulary)
        return TokenEmbedding(vocabulary, width, **place)
    raise ValueError(
        f"channels is {channels} and vocabulary is {vocabulary}; expected exactly one of them"
    )


def _describe(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {tensor.dtype}"
