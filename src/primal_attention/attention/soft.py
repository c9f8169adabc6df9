"""SOFT: attention with a Gaussian kernel in place of softmax, through landmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from ..theory.precision import widen, without_autocast
from .base import check_positive
from .cost import Terms
from .landmarks import Landmarks
from .projected import MixingAttention, hide
from .pseudo_inverse import newton
from .registry import register

__all__ = ["SoftAttention"]


@register(
    "soft",
    paper="Lu et al.: SOFT: Softmax-free Transformer with Linear Complexity, NeurIPS 2021",
    cost="O(N m)",
)
class SoftAttention(MixingAttention):
    """SOFT's attention. Queries are keys (one projection), the kernel is Gaussian,
    G(a, b)_ij = exp(-|a_i - b_j|^2 / (2 sqrt(p))), and with m landmarks, the means q~ (m, p) of
    consecutive runs of queries, per head

        K = G(q, q~) G(q~, q~)^+ G(q~, q)        o_i = sum_j K_ij v_j

    where ^+ is the pseudo-inverse by Newton's iteration. K is symmetric, its rows do not add up to
    one. Self-attention only, since there is one projection: `in_proj_weight` holds W_q and W_v.

    Unlike the published code, which samples landmarks on the grid of an image by a convolution:
    they are means of runs along the valid positions (the paper's pooling), so padding changes
    nothing wherever it stands. A sequence of at most m valid positions gets K = G(q, q), which the
    formula gives up to the error of the iteration. Newton's iteration starts from the norms of each
    matrix, where convergence is certain, and needs no search for a smaller step.

    Args:
        landmarks: m, number of landmarks.
        iterations: number of steps of Newton's iteration.
    """

    has_cross = False
    parts = 2  # W_q and W_v

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        landmarks: int = 49,
        iterations: int = 20,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )
        check_positive(landmarks=landmarks, iterations=iterations)
        self.landmarks, self.iterations = landmarks, iterations

    def cost(self, length: int, batch: int = 1) -> Terms:
        m, steps, d, h = self.landmarks, self.iterations, self.embed_dim, self.num_heads
        rows = batch * length
        flops = rows * 6 * d**2
        if m >= length:  # every position is a landmark: the kernel itself
            m, steps, flops = length, 0, flops + rows * 4 * length * d
        else:
            flops += rows * 6 * m * d + batch * (4 * m**2 * d + 4 * steps * h * m**3)
        near, inverse = rows * h * m, batch * 3 * steps * h * m**2
        return Terms(flops, rows * 4 * d + 3 * near // 2 + inverse, rows * 5 * d + near)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        v = hide(v, ignore)
        with without_autocast(q.device):
            return self._through_landmarks(widen(q), widen(v), ignore).to(v.dtype)

    def _through_landmarks(self, q: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        landmarks = Landmarks(self.landmarks, q.shape[2], ignore, q.device)
        if landmarks.all_single:
            return gaussian(q, q) @ v
        means = landmarks.means(q)  # (B, h, m, p)
        near = gaussian(q, means)  # (B, h, N, m)
        inner = landmarks.identity_where_empty(gaussian(means, means))  # (B, h, m, m)
        seen = hide(near.mT @ v, landmarks.empty)  # (B, h, m, c)
        values = newton(inner, self.iterations) @ seen
        return near @ landmarks.own_where_single(v, values)


def gaussian(a: Tensor, b: Tensor) -> Tensor:
    """exp(-|a_i - b_j|^2 / (2 sqrt(p))) of a (..., N, p) and b (..., M, p): (..., N, M)."""
    scale = a.shape[-1] ** -0.5
    half_a = (0.5 * scale) * a.square().sum(-1, keepdim=True)
    half_b = (0.5 * scale) * b.square().sum(-1).unsqueeze(-2)
    exponent: Tensor = (scale * a) @ b.mT
    exponent.sub_(half_a).sub_(half_b)  # a product's backward needs no result
    with torch.no_grad():  # rounding alone makes it positive: the slope stays that of the formula
        exponent.masked_fill_(exponent > 0.0, 0.0)
    return exponent.exp_()
