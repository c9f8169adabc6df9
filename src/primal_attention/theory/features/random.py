"""Random features of the exponential kernel."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..precision import widen, without_autocast
from .base import FeatureMap


class PositiveRandomFeatures(FeatureMap):
    """The positive random features of softmax (Remark 4.1), applied to `u = scale * z`:

        g(z) = m^{-1/2} exp(-||u||^2 / 2) (exp(w_1^T u), ..., exp(w_m^T u)),   w_i ~ N(0, I_p)

    With the factor `m^{-1/2}`, `<g(q), g(k)>` is an unbiased estimate of
    `exp(scale^2 <q, k>)` over the draw of `w`. The default `scale = p^{-1/4}` makes that
    the kernel `exp(<q, k> / sqrt(p))` of eq. (2); `scale=1.0` is the letter of the remark.

    Computed in float32 or wider and returned in the dtype of `z`: in float16 a feature above
    65504 overflows, bfloat16 and float32 have the range. `w` is the persistent buffer
    `directions (m, p)`, the same for the same `seed` on every device.

    Args:
        orthogonal: blocks of p directions are orthogonal to each other, which keeps each of them
            normal and the estimate unbiased, with a smaller variance.
    """

    positive: ClassVar[bool] = True
    directions: Tensor

    def __init__(
        self,
        head_dim: int,
        num_features: int | None = None,
        *,
        scale: float | None = None,
        seed: int = 0,
        orthogonal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, head_dim if num_features is None else num_features)
        self.scale = head_dim**-0.25 if scale is None else scale
        if not self.scale > 0:
            raise ValueError(f"scale is {scale}; expected a positive number")
        self.seed, self.orthogonal = seed, orthogonal
        empty = torch.empty(self.output_dim, head_dim, device=device, dtype=dtype)
        self.register_buffer("directions", empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw `w` from the seed again (also after `to_empty` of a module made on meta)."""
        shape = self.directions.shape
        # drawn on the CPU in float32, so that device and dtype do not change the draw
        generator = torch.Generator(device="cpu").manual_seed(self.seed)
        drawn = torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        with torch.no_grad():
            self.directions.copy_(_orthogonal_blocks(drawn) if self.orthogonal else drawn)

    def forward(self, z: Tensor) -> Tensor:
        self._check(z)
        # an exponent rounded to bfloat16 would be a feature wrong by several percent
        with without_autocast(z.device):
            u = widen(z) * self.scale
            exponent = u @ self.directions.to(u.dtype).mT - 0.5 * u.square().sum(-1, keepdim=True)
            features = exponent.exp() / math.sqrt(self.output_dim)
        return features.to(z.dtype)

    @property
    def products(self) -> int:
        return self.head_dim * self.output_dim

    def extra_repr(self) -> str:
        own = f"{self.head_dim}, {self.output_dim}, scale={self.scale:.4g}, seed={self.seed}"
        return f"{own}, orthogonal=True" if self.orthogonal else own


def _orthogonal_blocks(drawn: Tensor) -> Tensor:
    """Rows (m, p) of normal numbers, blocks of p of them turned to be orthogonal to each other:
    every row keeps its length, and its direction stays uniform."""
    blocks = []
    for block in drawn.split(drawn.shape[1]):
        q, r = torch.linalg.qr(block.mT)  # columns
        signs = torch.where(r.diagonal() < 0, -1.0, 1.0)  # makes q uniform (Mezzadri 2007)
        blocks.append((q * signs).mT * block.norm(dim=1, keepdim=True))
    return torch.cat(blocks)
