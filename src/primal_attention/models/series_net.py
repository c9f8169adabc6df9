"""A small net for time series: convolutions find shapes, attention relates them.

mean of every few positions, so that at most POSITIONS are left; above CHANNELS a linear layer, so
that CHANNELS are left -> convolutions of 3, 9 and 21 taps -> batch norm -> GELU -> mean of every
few positions, so that at most TOKENS are left -> residual dilated convolutions -> learned positions
-> pre-norm attention layers -> mean -> dropout -> linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.base import check_positive
from .dropout import Dropout
from .encoder import make_encoder
from .heads import mean_of_valid
from .packing import Packing, pack
from .positions import LearnedPositions

POSITIONS = 400  # that the stem sees at most
CHANNELS = 64  # likewise
TOKENS = 64  # that attention sees at most
STEM = (3, 9, 21)  # taps
TAPS = 5  # of the residual convolutions
DILATIONS = (1, 2, 4)  # theirs


class SeriesNet(nn.Module):
    """Logits of time series (B, N, channels) of up to `max_length` positions.

    `attention` names the attention of every layer, first layer first, `attention_options` are those
    of each NAME, as in `SequenceClassifier`; where they do not say, primal layers have two-sided
    softmax features and half the width of a head as rank. In evaluation a series gives the same
    logits alone and padded in a batch, wherever the padding stands; in training the batch norm sees
    all valid positions of the batch and no padding.
    """

    def __init__(
        self,
        *,
        classes: int,
        channels: int,
        max_length: int,
        attention: Sequence[str] = ("primal", "primal"),
        attention_options: Mapping[str, Mapping[str, Any]] | None = None,
        width: int = 64,
        heads: int = 4,
        feedforward: int = 128,
        dropout: float = 0.2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(
            classes=classes, channels=channels, max_length=max_length, width=width, heads=heads,
            feedforward=feedforward,
        )  # fmt: skip
        if width < len(STEM):
            raise ValueError(f"width is {width}; expected at least {len(STEM)}, one per stem")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.channels, self.max_length = channels, max_length
        self.thinning = -(-max_length // POSITIONS)  # positions that become one
        seen = -(-max_length // self.thinning)
        self.factor = -(-seen // TOKENS)  # of them, that become one token
        tokens = -(-seen // self.factor)
        inner = min(channels, CHANNELS)
        self.mixing = nn.Linear(channels, inner, **place) if channels > inner else nn.Identity()
        share = width // len(STEM)
        outputs = [width - share * (len(STEM) - 1), *[share] * (len(STEM) - 1)]
        self.stem = nn.ModuleList(
            nn.Conv1d(inner, out, taps, padding=taps // 2, **place)
            for out, taps in zip(outputs, STEM, strict=True)
        )
        self.stem_norm = nn.BatchNorm1d(width, **place)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, TAPS, padding=TAPS // 2 * d, dilation=d, **place)
            for d in DILATIONS
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width, **place) for _ in DILATIONS)
        self.positions = LearnedPositions(tokens, width, **place)
        self.encoder = make_encoder(
            attention, attention_options, width=width, heads=heads, feedforward=feedforward,
            activation=nn.GELU(), dropout=dropout, norm="pre",
            primal={"feature_map": "softmax"},  # by validation cases of training sets, three seeds
            settings={"max_length": tokens}, **place,
        )  # fmt: skip
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, classes, **place)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """Logits (B, classes); padding (B, N) bool, True marks positions to ignore."""
        logits: Tensor = self.output(self.dropout(self.embed(inputs, padding)))
        return logits

    def embed(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """The features (B, width) that the logits are linear in."""
        self._check(inputs, padding)
        rows, packing = pack(inputs, padding)
        if packing.length > self.max_length:
            raise ValueError(
                f"a series has length {packing.length}; expected at most max_length = "
                f"{self.max_length}"
            )
        rows, packing = _pooled(rows, packing, self.thinning)
        x = packing.unpack_zeroed(self.mixing(rows)).mT  # (B, C, N), zero behind the end
        x = torch.cat([convolution(x) for convolution in self.stem], 1)  # (B, d, N)
        rows = F.gelu(_normed(self.stem_norm, packing.pack(x.mT)))
        rows, packing = _pooled(rows, packing, self.factor)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            found = convolution(packing.unpack_zeroed(rows).mT).mT  # (B, n, d)
            rows = rows + F.gelu(_normed(norm, packing.pack(found)))
        return mean_of_valid(self.encoder(self.positions(rows, packing), packing), packing)

    def _check(self, inputs: Tensor, padding: Tensor | None) -> None:
        if inputs.dim() != 3 or inputs.shape[2] != self.channels or inputs.shape[1] == 0:
            raise ValueError(
                f"inputs is {tuple(inputs.shape)}; expected (batch, length, channels = "
                f"{self.channels}) with at least one position"
            )
        if padding is not None and (
            padding.shape != inputs.shape[:2] or padding.dtype != torch.bool
        ):
            raise ValueError(
                f"padding is {tuple(padding.shape)} of {padding.dtype}; expected "
                f"{tuple(inputs.shape[:2])}, torch.bool (True = ignore)"
            )


def _normed(norm: nn.Module, rows: Tensor) -> Tensor:
    """The batch norm of rows (..., d): each is one of the samples. A single one has no variance: it
    is normed as in evaluation."""
    flat = rows.reshape(-1, rows.shape[-1])
    if norm.training and len(flat) == 1:
        norm.eval()
        try:
            return norm(flat).view(rows.shape)  # type: ignore[no-any-return]
        finally:
            norm.train()
    normed: Tensor = norm(flat)
    return normed.view(rows.shape)


def _pooled(rows: Tensor, packing: Packing, factor: int) -> tuple[Tensor, Packing]:
    """The mean of every `factor` positions; the last of a series may have fewer."""
    if factor == 1:
        return rows, packing
    x = packing.unpack_zeroed(rows)  # (B, N, d)
    batch, length, width = x.shape
    tokens = -(-length // factor)
    missing = tokens * factor - length
    sums = F.pad(x, (0, 0, 0, missing)).view(batch, tokens, factor, width).sum(2)
    valid = x.new_ones(batch, length) if packing.padding is None else (~packing.padding).to(x)
    counts = F.pad(valid, (0, missing)).view(batch, tokens, factor).sum(2)  # (B, n)
    means = sums / counts.clamp(min=1.0).unsqueeze(-1)
    return pack(means, None if packing.padding is None else counts == 0)
