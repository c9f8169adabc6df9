"""What a feature map is, and the maps with a sharpness for every head."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn


class FeatureMap(nn.Module):
    """A map `g` from a query or a key `z (..., p)` to its features `(..., m)`.

    `positive` says whether every feature is positive, so that the normaliser
    `D = diag(phi_q(X) (phi_k(X)^T 1))` of Remark 4.1 exists and applies. With `unit_rows` a primal
    layer makes z from `x / rms(x)`: features then tell directions of x, and never overflow.

    A layer calls a map in two steps: `fold` brings what the map does to z by a factor into the
    linear maps that make z, `features` does the rest. A map without such a factor has `forward`.
    """

    positive: ClassVar[bool]
    unit_rows: ClassVar[bool] = False

    def __init__(self, head_dim: int, output_dim: int) -> None:
        super().__init__()
        for name, value in (("head_dim", head_dim), ("output_dim", output_dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected at least 1")
        self.head_dim = head_dim
        self.output_dim = output_dim

    def forward(self, z: Tensor) -> Tensor:
        """`(..., head_dim) -> (..., output_dim)`, in the dtype of `z`."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def reset_parameters(self) -> None:
        """Start again; a map without parameters has nothing to do."""

    def fold(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The maps (2h * p, d) and (2h * p,) that make queries and keys, ready for `features`."""
        return weight, bias

    def features(self, u: Tensor) -> Tensor:
        """The features of a query or a key that folded maps have made."""
        features: Tensor = self(u)
        return features

    @property
    def products(self) -> int:
        """Multiply-adds of matrix products for one z."""
        return 0

    def _check(self, z: Tensor) -> None:
        if z.shape[-1] != self.head_dim:
            raise ValueError(f"z has {z.shape[-1]} channels; expected head_dim = {self.head_dim}")


class SharpMap(FeatureMap):
    """A positive map of `u = a z` with a sharpness a > 0 of its own for every head, on the side of
    the queries and on that of the keys. The larger a is, the fewer keys a query sees.

    Since `a (W x + c) = (a W) x + a c`, the sharpness folds into the projections and costs nothing
    for each position.

    The parameter is `log_sharpness (2, h)`: queries, then keys. `num_heads=1` shares it.
    """

    positive: ClassVar[bool] = True

    def __init__(
        self,
        head_dim: int,
        output_dim: int,
        num_heads: int,
        sharpness: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(head_dim, output_dim)
        for name, value in (("num_heads", num_heads), ("sharpness", sharpness)):
            if not value > 0:
                raise ValueError(f"{name} is {value}; expected a positive number")
        self.num_heads, self.start = num_heads, float(sharpness)
        empty = torch.empty(2, num_heads, device=device, dtype=dtype)
        self.log_sharpness = nn.Parameter(empty)

    def reset_parameters(self) -> None:
        """Every head starts with the same sharpness."""
        nn.init.constant_(self.log_sharpness, math.log(self.start))

    @property
    def sharpness(self) -> Tensor:
        """a, (2, h)."""
        return self.log_sharpness.exp()

    def forward(self, z: Tensor) -> Tensor:
        """Queries and keys `z (..., 2, h, N, p)` to their features `(..., 2, h, N, m)`."""
        self._check_sides(z)
        return self.features(z * self.sharpness[..., None, None].to(z.dtype))

    def fold(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`a W` and `a c`."""
        a = self.sharpness.to(weight.dtype)
        rows = weight.unflatten(0, (2, -1, self.head_dim))  # (z, h, p, d)
        scaled = (rows * a[..., None, None]).flatten(0, 2)
        if bias is None:
            return scaled, None
        return scaled, (bias.unflatten(0, (2, -1, self.head_dim)) * a[..., None]).flatten()

    def _check_sides(self, z: Tensor) -> None:
        self._check(z)
        if z.dim() < 4 or z.shape[-4] != 2 or self.num_heads not in (1, z.shape[-3]):
            raise ValueError(
                f"z has shape {tuple(z.shape)}; expected (..., 2, h, N, p) with the sides of the "
                f"queries and the keys, h = {self.num_heads} heads"
            )

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.output_dim}, num_heads={self.num_heads}"
