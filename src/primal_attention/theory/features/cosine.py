"""The cosine kernel."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..precision import widen
from .base import FeatureMap

SMALLEST_NORM = 1e-12  # a shorter row has no direction worth the name


class Cosine(FeatureMap):
    """`g(z) = z / ||z||_2`: the cosine kernel, the map of all the paper's experiments.

    Bounded: no pair of positions can weigh more than 1, so a match among N positions does not stand
    out. The norm is taken in float32 or wider. A row with `||z|| <= 1e-12` maps to zero with zero
    gradient (not to a huge one): it has no direction.
    """

    positive: ClassVar[bool] = False

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim, head_dim)

    def forward(self, z: Tensor) -> Tensor:
        self._check(z)
        wide = widen(z)
        square = wide.square().sum(dim=-1, keepdim=True)
        alive = square > SMALLEST_NORM**2
        # both branches of the outer where are finite, hence so is every derivative
        inverse = torch.where(alive, torch.where(alive, square, 1.0).rsqrt(), 0.0)
        return (wide * inverse).to(z.dtype)
