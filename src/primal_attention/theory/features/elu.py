"""Powers of elu + 1: positive features that focus."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .base import SharpMap


class Elu(SharpMap):
    """`g(z) = (elu(a z) + 1)^b`, elementwise: `exp(b a z)` where z < 0, `(1 + a z)^b` elsewhere.

    A channel that does not match is exponentially small, one that does grows like a power b: a pair
    of positions can outweigh many others, at the cost of a linear kernel. `a = b = 1` is the map of
    linear attention. Primal layers take it of unit rows, so that J does not depend on powers of x.

    Args:
        num_heads: heads that have a sharpness of their own.
        sharpness: where a starts; learned, for every head and side.
        power: b, or where it starts.
        learn_power: b is learned too, for every head and side: `log_power (2, h)`.
    """

    unit_rows: ClassVar[bool] = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int = 1,
        *,
        sharpness: float = 2.0,
        power: float = 2.0,
        learn_power: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, head_dim, num_heads, sharpness, device, dtype)
        if not power > 0:
            raise ValueError(f"power is {power}; expected a positive number")
        self.power = float(power)
        self.log_power: nn.Parameter | None = None
        if learn_power:
            self.log_power = nn.Parameter(torch.empty(2, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.log_power is not None:
            nn.init.constant_(self.log_power, math.log(self.power))

    def features(self, u: Tensor) -> Tensor:
        """`(elu(u) + 1)^b`; a learned b expects the sides and heads, `u (..., 2, h, N, p)`."""
        self._check(u)
        if self.log_power is None:
            return elu_power(u, self.power)
        self._check_sides(u)
        log = u.clamp(max=0.0) + u.clamp(min=0.0).log1p()
        return (log * self.log_power.exp()[..., None, None].to(u.dtype)).exp()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, power={self.power:g}"


def elu_power(u: Tensor, power: float) -> Tensor:
    """`(elu(u) + 1)^power`, elementwise."""
    features: Tensor = _EluPower.apply(u, power)
    return features


class _EluPower(torch.autograd.Function):
    """With y = elu(u) + 1, whose slope is min(y, 1): torch's own passes would take the exponential
    of every u again and keep every step."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, power: float) -> Tensor:
        # not torch's elu, which subtracts 1 first: sharp features are far below rounding to 1
        y = u.clamp(max=0.0).exp_().add_(u.clamp(min=0.0))
        return y if power == 1.0 else y.mul_(y) if power == 2.0 else y.pow_(power)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.power = inputs[1]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return _times_slope(g, out, ctx.power), None

    @staticmethod
    def jvp(ctx: Any, g: Tensor, _: None) -> Tensor:
        (out,) = ctx.saved_tensors
        return _times_slope(g, out, ctx.power)


def _times_slope(g: Tensor, out: Tensor, power: float) -> Tensor:
    """g times b y^(b - 1) min(y, 1) = b min(y^b, y^(b - 1)), of the result y^b."""
    if power == 1.0:
        return out.clamp(max=1.0) * g
    tiny = out.clamp(min=torch.finfo(out.dtype).tiny)  # a root has no slope at zero
    lower = tiny.sqrt() if power == 2.0 else tiny.pow(1.0 - 1.0 / power)
    return torch.minimum(out, lower) * (power * g)
