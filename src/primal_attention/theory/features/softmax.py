"""Two-sided softmax features."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import SharpMap


class TwoSidedSoftmax(SharpMap):
    """`g(z) = [softmax(a z), softmax(-a z)]` over the channels: 2p positive features.

    Channels compete with each other, and a channel may stand for either sign. Bounded, as every
    half sums to 1, but not flat: the largest channel takes all as a grows.

    Args:
        num_heads: heads that have a sharpness of their own.
        sharpness: where a starts; learned, for every head and side.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int = 1,
        *,
        sharpness: float = 2.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, 2 * head_dim, num_heads, sharpness, device, dtype)
        self.reset_parameters()

    def features(self, u: Tensor) -> Tensor:
        self._check(u)
        return torch.cat([u.softmax(-1), (-u).softmax(-1)], dim=-1)
