"""Linear attention: a product of positive features in the place of the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .factored import FactoredAttention, Factors, LinearState, inner_products, inverse
from .registry import register

__all__ = ["LinearAttention", "LinearState"]


@register("linear", paper="Katharopoulos et al.: Transformers are RNNs, ICML 2020", cost="O(N)")
class LinearAttention(FactoredAttention):
    """Linear attention. Per head, with phi(x) = elu(x) + 1 elementwise,

        K_ij = <phi(q_i), phi(k_j)> / sum_j <phi(q_i), phi(k_j)>     o_i = sum_j K_ij v_j

    where the sums run over all valid keys, or over those up to i with causal=True. The published
    code adds 1e-6 to the row sums; features are positive, so there is nothing to guard here.
    """

    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        left, right = _features(q), _features(k)
        if hidden_keys is not None:
            right = right.masked_fill(hidden_keys[:, :, None, None], 0.0)
        total = right.sum(1)
        return Factors(left, right, total, inverse(inner_products(left, total)))

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: LinearState
    ) -> tuple[Tensor, LinearState]:
        q, k = _features(q), _features(k)
        if ignore is not None:
            k = k.masked_fill(ignore[:, None, :, None], 0.0)
        return state.scan(q, k, v, ignore)


def _features(x: Tensor) -> Tensor:
    features: Tensor = _EluPlusOne.apply(x)
    return features


class _EluPlusOne(torch.autograd.Function):
    """elu(x) + 1, whose slope is min(y, 1) at y: torch's own pass would take the exponential of
    every x again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return F.elu(x).add_(1.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        slope: Tensor = y.clamp(max=1.0)
        return slope * g
