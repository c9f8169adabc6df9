"""Linear attention: a product of positive features in the place of the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.features import Elu, FeatureMap, make_feature_map
from .factored import FactoredAttention, Factors, LinearState, inner_products, inverse
from .registry import register

__all__ = ["LinearAttention", "LinearState"]


@register("linear", paper="Katharopoulos et al.: Transformers are RNNs, ICML 2020", cost="O(N)")
class LinearAttention(FactoredAttention):
    """Linear attention. Per head, with phi(x) = elu(x) + 1 elementwise,

        K_ij = <phi(q_i), phi(k_j)> / sum_j <phi(q_i), phi(k_j)>     o_i = sum_j K_ij v_j

    where the sums run over all valid keys, or over those up to i with causal=True. The published
    code adds 1e-6 to the row sums; features are positive, so there is nothing to guard here.

    Args:
        feature_map: another phi, positive: "elu", "softmax", "exp", "exp-orthogonal", or a
            `FeatureMap`; None is that of the paper.
    """

    summary = "constant"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        feature_map: str | FeatureMap | None = None,
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
        self.feature_map: FeatureMap | None = None
        if feature_map is not None:
            made = make_feature_map(
                feature_map, self.head_dim, self.num_heads, device=device, dtype=dtype
            )
            if not made.positive:
                raise ValueError(f"feature_map is {feature_map!r}; expected a positive one")
            if isinstance(made, Elu) and made.log_power is not None:
                raise ValueError("feature_map has a learned power; expected a fixed one")
            self.feature_map = made

    @property
    def _width(self) -> int:
        return self.head_dim if self.feature_map is None else self.feature_map.output_dim

    def _in_projection(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = super()._in_projection()
        if self.feature_map is None:
            return weight, bias
        cut = 2 * self.embed_dim  # values stay as they are
        w_qk, b_qk = self.feature_map.fold(weight[:cut], None if bias is None else bias[:cut])
        joined = None if bias is None or b_qk is None else torch.cat([b_qk, bias[cut:]])
        return torch.cat([w_qk, weight[cut:]]), joined

    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        left, (right, _) = self._query_features(q), self._key_features(k, hidden_keys)
        total = right.sum(1)
        return Factors(left, right, total, inverse(inner_products(left, total)))

    def _key_features(self, k: Tensor, hidden: Tensor | None) -> tuple[Tensor, None]:
        right = self._features(k)
        return right if hidden is None else right.masked_fill(hidden[:, :, None, None], 0.0), None

    def _query_features(self, q: Tensor) -> Tensor:
        return self._features(q)

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: LinearState
    ) -> tuple[Tensor, LinearState]:
        q, k = self._features(q), self._features(k)
        if ignore is not None:
            k = k.masked_fill(ignore[:, None, :, None], 0.0)
        return state.scan(q, k, v, ignore)

    def _features(self, x: Tensor) -> Tensor:
        return _features(x) if self.feature_map is None else self.feature_map.features(x)


def _features(x: Tensor) -> Tensor:
    if torch._C._are_functorch_transforms_active():  # they differentiate the plain operations
        return F.elu(x) + 1.0
    features: Tensor = _EluPlusOne.apply(x)
    return features


class _EluPlusOne(torch.autograd.Function):
    """elu(x) + 1, whose slope is min(y, 1) at y: torch's own pass would take the exponential of
    every x again."""

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
