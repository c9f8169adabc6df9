"""cosFormer: products of rectified queries and keys, weighted by how near the positions are."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.graphs import is_exporting
from ..kernels.ordering import positions
from .base import check_positive
from .factored import FactoredAttention, Factors, LinearState, inner_products, inverse
from .registry import register

__all__ = ["CosformerAttention"]


@register(
    "cosformer",
    paper="Qin et al.: cosFormer: Rethinking Softmax in Attention, ICLR 2022",
    cost="O(N)",
)
class CosformerAttention(FactoredAttention):
    """cosFormer attention. Per head, with phi(x) = relu(x),

        S_ij = <phi(q_i), phi(k_j)> cos(pi/2 (i - j) / L)     K_ij = S_ij / sum_j S_ij

    The cosine of a difference is a product of features twice as wide, phi(x_i) cos(pi/2 i / L) and
    phi(x_i) sin(pi/2 i / L), so the cost is linear (equations 10 to 12).

    Positions i and j count valid positions only. Unlike the published code, which keeps row sums
    above 1e-6: a row without any weight, where phi(q_i) meets only zeros, is zero, and all others
    are exact.

    Args:
        max_length: L; longer sequences raise, since the cosine would become negative. None takes
            the number of valid positions of the sequence, the longer one in cross-attention, which
            a causal layer cannot know: it needs max_length.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        max_length: int | None = None,
        causal: bool = False,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        if max_length is not None:
            check_positive(max_length=max_length)
        elif causal:
            raise ValueError(
                "max_length is None with causal=True; expected the length of the longest sequence, "
                "which the weights of a causal layer depend on"
            )
        self.max_length = max_length

    @property
    def _width(self) -> int:
        return 2 * self.head_dim

    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        query_ends, key_ends = positions(q, hidden_queries), positions(k, hidden_keys)
        length = torch.maximum(query_ends[:, -1:], key_ends[:, -1:])  # (B, 1)
        waves_q = self._waves(query_ends, length, q.dtype)[:, :, None]  # (B, N, 1, 2)
        waves_k = self._waves(key_ends, length, k.dtype)[:, :, None]
        if hidden_keys is not None:
            waves_k = waves_k.masked_fill(hidden_keys[:, :, None, None], 0.0)
        right = F.relu(k).unsqueeze(3) * waves_k.unsqueeze(-1)  # (B, M, h, 2, p)
        total = right.sum(1)
        left = F.relu(q)
        sums = (inner_products(left, total.mT) * waves_q).sum(-1)  # (B, N, h)
        left = left.unsqueeze(3) * (waves_q * inverse(sums).unsqueeze(-1)).unsqueeze(-1)
        return Factors(left.flatten(3), right.flatten(3), total.flatten(2))

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: LinearState
    ) -> tuple[Tensor, LinearState]:
        ends = state.seen.unsqueeze(-1) + positions(q.transpose(1, 2), ignore)
        waves = self._waves(ends, ends[:, -1:], q.dtype)[:, None, :, :, None]  # (B, 1, N, 2, 1)
        q = (F.relu(q).unsqueeze(3) * waves).flatten(3)
        if ignore is not None:
            waves = waves.masked_fill(ignore[:, None, :, None, None], 0.0)
        k = (F.relu(k).unsqueeze(3) * waves).flatten(3)
        return state.scan(q, k, v, ignore)

    def _waves(self, ends: Tensor, length: Tensor, dtype: torch.dtype) -> Tensor:
        """cos and sin of pi/2 i / L, (B, N, 2), for positions i = ends - 1 of `length` (B, 1)."""
        if self.max_length is not None:
            _check_length(length, self.max_length)
            length = torch.full_like(length, self.max_length)
        # in float32 at least: narrower types do not tell late positions apart
        wide = torch.promote_types(dtype, torch.float32)
        angle = (ends - 1).to(wide) * (0.5 * math.pi) / length.clamp(min=1).to(wide)
        return torch.stack([angle.cos(), angle.sin()], -1).to(dtype)


def _check_length(length: Tensor, longest: int) -> None:
    if torch.compiler.is_compiling():  # a graph can only check while it runs, an exported one not
        if not is_exporting():
            torch._assert_async((length <= longest).all(), "a sequence is longer than max_length")
    elif length.numel() and (found := int(length.max())) > longest:
        raise ValueError(
            f"a sequence has {found} valid positions; expected at most max_length = {longest}"
        )
