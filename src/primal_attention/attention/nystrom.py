"""Nystrom attention: the softmax matrix through landmarks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.ordering import permute, valid_first
from ..theory.precision import widen, without_autocast
from .base import check_positive
from .cost import Terms
from .landmarks import Landmarks
from .masks import visible_keys
from .projected import MixingAttention, hide
from .pseudo_inverse import third_order
from .registry import register

__all__ = ["NystromAttention"]

BLOCK = 64  # rows of a product in the convolution


@register(
    "nystrom",
    paper="Xiong et al.: Nystromformer: A Nystrom-Based Algorithm for Approximating "
    "Self-Attention, AAAI 2021",
    cost="O(N m)",
)
class NystromAttention(MixingAttention):
    """Nystromformer's attention. With m landmarks, the means q~, k~ (m, p) of consecutive runs of
    queries and of keys, and S(a, b) = softmax(a b^T / sqrt(p)) by rows, per head

        K = S(q, k~) S(q~, k~)^+ S(q~, k)        o_i = sum_j K_ij v_j + sum_t c_t v_(i + t)

    where ^+ is an iterative pseudo-inverse and c (h, residual_width) a learned kernel over
    neighbours. The matrix given with need_weights contains the residual. Self-attention only: the
    residual adds values to the queries at their places.

    Unlike the published code: runs are taken along the valid positions and differ by one in length
    where m does not divide their number; so are neighbours, so padding changes nothing wherever it
    stands. A sequence of at most m valid positions gets the softmax itself, which the formula gives
    up to the error of the iteration. The pseudo-inverse starts from the norms of each matrix, not
    of the batch.

    Args:
        landmarks: m, number of landmarks.
        iterations: number of steps of the pseudo-inverse.
        residual_width: number of neighbours in the residual, odd; None leaves the residual out.
    """

    has_cross = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        landmarks: int = 64,
        iterations: int = 6,
        residual_width: int | None = 33,
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
        self.residual_width = residual_width
        self.residual: nn.Parameter | None = None
        if residual_width is not None:
            check_positive(residual_width=residual_width)
            if residual_width % 2 == 0:
                raise ValueError(
                    f"residual_width is {residual_width}; expected an odd number or None"
                )
            kernel = torch.empty(num_heads, residual_width, device=device, dtype=dtype)
            self.residual = nn.Parameter(kernel)
            self._reset_residual()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_residual()

    def _reset_residual(self) -> None:
        if self.residual is not None:
            bound = 1.0 / math.sqrt(self.residual.shape[1])
            nn.init.uniform_(self.residual, -bound, bound)

    def cost(self, length: int, batch: int = 1) -> Terms:
        m, steps, d, h = self.landmarks, self.iterations, self.embed_dim, self.num_heads
        flops, kept, working = self._projection_cost(batch * length)
        if m >= length:  # every position is a landmark: softmax itself
            m, steps, flops = 0, 0, flops + batch * 4 * length**2 * d
        flops += batch * (8 * length * m * d + 4 * m**2 * d + 8 * steps * h * m**3)
        if self.residual is not None:
            width = self.residual.shape[1]
            flops += batch * 2 * (-(-length // BLOCK) * BLOCK) * (BLOCK - 1 + width) * d
        inverse = batch * 8 * steps * h * m**2
        return Terms(flops, kept + inverse + batch * 2 * length * d, working + inverse)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        landmarks = Landmarks(self.landmarks, k.shape[2], ignore, k.device)
        keys = visible_keys(ignore)
        if landmarks.all_single:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=keys)
        else:
            q_mean, k_mean = landmarks.means(q), landmarks.means(k)  # (B, h, m, p)
            seen = F.scaled_dot_product_attention(q_mean, k, v, attn_mask=keys)  # (B, h, m, c)
            with without_autocast(q.device):
                inverse = self._inverse(widen(q_mean), widen(k_mean), landmarks)
                values = (inverse @ widen(seen)).to(seen.dtype)
            values = landmarks.own_where_single(v, values)
            out = F.scaled_dot_product_attention(
                q, k_mean, values, attn_mask=visible_keys(landmarks.empty)
            )
        return out if self.residual is None else out + convolve(v, self.residual, ignore)

    def _inverse(self, q_mean: Tensor, k_mean: Tensor, landmarks: Landmarks) -> Tensor:
        """S(q~, k~)^+ (B, h, m, m)."""
        scores = (q_mean * q_mean.shape[-1] ** -0.5) @ k_mean.mT
        if landmarks.empty is not None:
            scores = scores.masked_fill(landmarks.empty[:, None, None, :], -torch.inf)
            scores = hide(scores, landmarks.empty)
        inner = landmarks.identity_where_empty(scores.softmax(-1))
        return third_order(inner, self.iterations)


def convolve(v: Tensor, kernel: Tensor, ignore: Tensor | None) -> Tensor:
    """Each row of v (B, h, N, c) with its valid neighbours, weighted by kernel (h, w), w odd."""
    if ignore is None:
        return _convolve(v, kernel)
    order, place = valid_first(ignore)
    return permute(_convolve(permute(hide(v, ignore), order), kernel), place)


def _convolve(v: Tensor, kernel: Tensor, block: int = BLOCK) -> Tensor:
    """As products of a Toeplitz matrix with blocks of rows and their margins: faster than torch's
    depthwise convolution on a CPU, forward and backward."""
    batch, heads, length, width = v.shape
    reach = kernel.shape[1] // 2
    window, blocks = block + 2 * reach, -(-length // block)
    margins = (0, 0, 0, 0, reach, reach + blocks * block - length)
    rows = F.pad(v.permute(1, 2, 0, 3), margins).flatten(2)  # (h, N', B * c)
    windows = rows.unfold(1, window, block).mT  # (h, blocks, window, B * c)
    # row i of the matrix is the kernel, i places to the right
    toeplitz = F.pad(kernel, (0, block)).repeat(1, block)[:, : block * window]
    out = toeplitz.view(heads, 1, block, window).to(rows.dtype) @ windows
    return out.view(heads, blocks * block, batch, width).permute(2, 0, 1, 3)[:, :, :length]
