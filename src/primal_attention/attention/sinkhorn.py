"""Sinkhorn attention: rows and columns of the matrix both sum to one, in linear time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.factors import KernelFactors
from .base import check_positive
from .cost import Terms
from .factored import in_range, inverse
from .inputs import Sequences
from .projected import UndroppedAttention, hide, silence
from .registry import register

__all__ = ["SinkhornAttention"]


@register(
    "sinkhorn",
    paper="Sander et al.: Sinkformers, AISTATS 2022; here with linear features",
    cost="O(N)",
)
class SinkhornAttention(UndroppedAttention):
    """Doubly stochastic attention. Per head, with phi(x) = elu(x) + 1 elementwise,

        K = diag(u) Phi_q Phi_k^T diag(v)        o_i = sum_j K_ij v_j

    where u and v make the rows of K sum to 1 and its columns to N / M (Sinkhorn's iteration): every
    position gives as much as it gets. The published attention iterates on the N x N matrix of the
    softmax; on factors one iteration is O(N), u = 1 / (Phi_q (Phi_k^T v)) and likewise v. The last
    step is that of the rows, so that these are exact. There is no causal form: the only triangular
    matrix of this kind is the identity.

    Args:
        iterations: how often rows and columns are scaled.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        iterations: int = 5,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )
        check_positive(iterations=iterations)
        self.iterations = iterations

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KernelFactors:
        """The attention matrix (B, h, N, M) as factors."""
        call, values = self._arrange(query, key, None, key_padding_mask)
        q, k, _ = self._project(call, values)
        return KernelFactors(*self._plan(q, k, call.ignore if call.is_self else None, call.ignore))

    def cost(self, length: int, batch: int = 1) -> Terms:
        rows, d = batch * length, self.embed_dim
        flops, kept, working = self._projection_cost(rows)
        steps = 4 * self.iterations + 2  # products of features with vectors
        features = rows * (2 * d + steps * self.num_heads)
        flops += rows * (4 * d * self.head_dim + 2 * steps * d)
        return Terms(flops, kept + features, working + features)

    def _attend(self, call: Sequences, values: Tensor) -> Tensor:
        q, k, v = self._project(call, values)
        heads = self.transport(q, k, v, call.ignore if call.is_self else None, call.ignore)
        return self._output(heads, call)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return self.transport(q, k, v, None, ignore)

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        with in_range(q, k) as (wide_q, wide_k):
            hidden = call.ignore if call.is_self else None
            left, right = self._plan(wide_q, wide_k, hidden, call.ignore)
            return silence(left @ right.mT, call).to(q.dtype)

    def transport(
        self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, ignore: Tensor | None
    ) -> Tensor:
        """The heads (B, h, N, p), without the hidden queries and the ignored keys."""
        with in_range(q, k, v) as (wide_q, wide_k, wide_v):
            left, right = self._plan(wide_q, wide_k, hidden, ignore)
            heads: Tensor = left @ (right.mT @ wide_v)
            return heads.to(q.dtype)

    def _plan(
        self, q: Tensor, k: Tensor, hidden: Tensor | None, ignore: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """diag(u) Phi_q (B, h, N, p) and diag(v) Phi_k (B, h, M, p); ignored ones are zero."""
        # contiguous: every product of an iteration would copy and keep them
        left = hide(F.elu(q) + 1.0, hidden).contiguous()
        right = hide(F.elu(k) + 1.0, ignore).contiguous()
        share = _count(q, hidden) / _count(k, ignore)  # what a column sums to
        v = torch.ones_like(right[..., :1])  # (B, h, M, 1)
        u = inverse(left @ (right.mT @ v))
        for _ in range(self.iterations):
            v = inverse(right @ (left.mT @ u)) * share
            u = inverse(left @ (right.mT @ v))
        return u * left, v * right


def _count(rows: Tensor, ignore: Tensor | None) -> Tensor:
    """How many positions take part, (B or 1, 1, 1, 1), at least 1."""
    if ignore is None:
        return rows.new_full((1, 1, 1, 1), rows.shape[2])
    return (~ignore).sum(-1).clamp(min=1).to(rows.dtype)[:, None, None, None]
