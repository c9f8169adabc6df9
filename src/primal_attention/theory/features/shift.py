"""Positive random features of kernels of the distance |q - k|."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..precision import widen, without_autocast
from .base import FeatureMap


class GaussianFeatures(FeatureMap):
    """`<g(q), g(k)>` is an unbiased estimate of `exp(-gamma |q - k|^2)` with positive terms:

        g_i(z) = m^{-1/2} exp(w_i^T u - |u|^2),    u = sqrt(2 gamma) z,    w_i ~ N(0, I_p)

    Remark 4.1 has |u|^2 / 2, whose kernel is exp(<u_q, u_k>). No feature exceeds exp(|w_i|^2 / 4):
    a key far from every query is small, not large. The default gamma is 1 / (2 sqrt(p)).

    `w` is the persistent buffer `directions (m, p)`, the same for the same `seed` on every device.
    """

    positive: ClassVar[bool] = True
    directions: Tensor

    def __init__(
        self,
        head_dim: int,
        num_features: int | None = None,
        *,
        gamma: float | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, head_dim if num_features is None else num_features)
        self.gamma = 0.5 * head_dim**-0.5 if gamma is None else gamma
        if not self.gamma > 0:
            raise ValueError(f"gamma is {gamma}; expected a positive number")
        self.seed = seed
        empty = torch.empty(self.output_dim, head_dim, device=device, dtype=dtype)
        self.register_buffer("directions", empty)
        self._make_buffers(device, dtype)
        self.reset_parameters()

    def _make_buffers(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        """Those of a kernel that has more."""

    def reset_parameters(self) -> None:
        """Draw from the seed again (also after `to_empty` of a module made on meta)."""
        # drawn on the CPU in float32, so that device and dtype do not change the draw
        self._draw(torch.Generator(device="cpu").manual_seed(self.seed))

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        shape = self.directions.shape
        drawn = torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        self.directions.copy_(drawn)

    def forward(self, z: Tensor) -> Tensor:
        self._check(z)
        with without_autocast(z.device):
            u = widen(z) * math.sqrt(2.0 * self.gamma)
            features = self._exponents(u).exp() / math.sqrt(self.output_dim)
        return features.to(z.dtype)

    def _exponents(self, u: Tensor) -> Tensor:
        return u @ self.directions.to(u.dtype).mT - u.square().sum(-1, keepdim=True)

    @property
    def products(self) -> int:
        return self.head_dim * self.output_dim

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.output_dim}, gamma={self.gamma:.4g}, seed={self.seed}"


class InverseQuadraticFeatures(GaussianFeatures):
    """`<g(q), g(k)>` is an unbiased estimate of `1 / (1 + gamma |q - k|^2)`: the Gaussian map with
    a width of its own for every feature, `u_i = sqrt(2 s_i gamma) z` with `s_i ~ Exp(1)`, since
    `E exp(-s t) = 1 / (1 + t)`. The buffer `widths (m,)` holds s."""

    widths: Tensor

    def _make_buffers(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        self.register_buffer("widths", torch.empty(self.output_dim, device=device, dtype=dtype))

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        super()._draw(generator)
        drawn = torch.rand(self.output_dim, generator=generator, device="cpu", dtype=torch.float32)
        self.widths.copy_(-(1.0 - drawn).log())

    def _exponents(self, u: Tensor) -> Tensor:
        s = self.widths.to(u.dtype)
        along = u @ self.directions.to(u.dtype).mT
        return s.sqrt() * along - s * u.square().sum(-1, keepdim=True)
