"""What tells a token its position."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .options import Place
from .packing import Packing


class Positions(nn.Module):
    """Adds row n of a table (max_length, width) to the token at position n of its sequence."""

    table: Tensor

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        if packing.places is None:
            return rows + self.table[: packing.length]
        return rows + F.embedding(packing.places % packing.length, self.table)


class LearnedPositions(Positions):
    """A table of parameters, uniform in +-0.02 at the start."""

    def __init__(self, max_length: int, width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, width, **place))
        nn.init.uniform_(self.table, -0.02, 0.02)


class SinusoidalPositions(Positions):
    """`sin(n / 10000^(2i / width))` at column 2i, the cosine beside it (Vaswani et al., 2017)."""

    def __init__(self, max_length: int, width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        position = torch.arange(max_length, dtype=torch.float64).unsqueeze(-1)
        column = torch.arange(0, width, 2, dtype=torch.float64)
        angle = position * torch.exp(-math.log(10000.0) * column / width)
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :width]
        kind = place.get("dtype") or torch.get_default_dtype()
        self.register_buffer("table", table.to(place.get("device"), kind), persistent=False)
