"""From the numbers or tokens of a sequence to rows of the model's width, scaled by sqrt(width)."""

from __future__ import annotations

import math
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional as F

from .options import Place


class SeriesEmbedding(nn.Linear):
    """Channels (..., C) to (..., d) by a linear layer."""

    def __init__(self, channels: int, width: int, **place: Unpack[Place]) -> None:
        super().__init__(channels, width, **place)
        self.scale = math.sqrt(width)

    def forward(self, values: Tensor) -> Tensor:
        # scaled where the numbers are few
        return F.linear(values * self.scale, self.weight, self.bias * self.scale)


class TokenEmbedding(nn.Embedding):
    """Tokens (...) to (..., d); the rows have about unit variance at the start."""

    def __init__(self, vocabulary: int, width: int, **place: Unpack[Place]) -> None:
        self.scale = math.sqrt(width)
        super().__init__(vocabulary, width, **place)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=1 / self.scale)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * self.scale
