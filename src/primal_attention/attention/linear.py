"""Linear attention: a product of positive features in the place of the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.scan import Sums, causal_scan
from ..theory.features import Elu, FeatureMap, make_feature_map
from ..theory.transforms import is_transformed
from .base import check_batch
from .factored import (
    FactoredAttention,
    Factors,
    LinearState,
    count,
    in_range,
    inner_products,
    inverse,
)
from .inputs import Sequences
from .projected import silence
from .registry import register
from .rotation import Rotation

__all__ = ["LinearAttention", "LinearState"]


@register("linear", paper="Katharopoulos et al.: Transformers are RNNs, ICML 2020", cost="O(N)")
class LinearAttention(FactoredAttention):
    """Linear attention. Per head, with phi(x) = elu(x) + 1 elementwise,

        K_ij = <phi(q_i), phi(k_j)> / sum_j <phi(q_i), phi(k_j)>     o_i = sum_j K_ij v_j

    where the sums run over all valid keys, or over those up to i with causal=True. The published
    code adds 1e-6 to the row sums; features are positive, so there is nothing to guard here.

    A rotation by times turns the features in the sums over values, not in the sums that divide
    them, which stay positive (Su et al.: RoFormer, 2021, equation 19):

        o_i = sum_j <R_i phi(q_i), R_j phi(k_j)> v_j / sum_j <phi(q_i), phi(k_j)>

    Args:
        feature_map: another phi, positive: "elu", "softmax", "exp", "exp-orthogonal", "gaussian",
            "inverse_quadratic", or a `FeatureMap`; None is that of the paper.
    """

    has_rotation = True
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

    # -- with a rotation ---------------------------------------------------------------------------

    def _attend(self, call: Sequences, values: Tensor) -> Tensor:
        if call.rotation is None:
            return super()._attend(call, values)
        return self._turned(call, values, call.rotation, None)[0]

    def _continue(self, call: Sequences, values: Tensor, state: Any) -> tuple[Tensor, Any]:
        if call.rotation is None:
            return super()._continue(call, values, state)
        check_batch(len(state.seen), call.x.shape[0])
        return self._turned(call, values, call.rotation, state)

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        if call.rotation is None:
            return super()._weights(q, k, call)
        identity = torch.eye(k.shape[2], dtype=q.dtype, device=q.device)
        mixed = identity.expand(*k.shape[:3], -1)
        heads, _ = self._turned_heads(q, k, mixed, call.ignore, call.rotation, None)
        return silence(heads, call)

    def _turned(
        self, call: Sequences, values: Tensor, rotation: Rotation, state: LinearState | None
    ) -> tuple[Tensor, LinearState | None]:
        """The output rows of a call with a rotation, and in causal layers the state after it."""
        projected = self._project(call, values)
        with in_range(*projected) as (q, k, v):
            heads, state = self._turned_heads(q, k, v, call.ignore, rotation, state)
        return self._output(heads.to(projected[0].dtype), call), state

    def _turned_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ignore: Tensor | None,
        rotation: Rotation,
        state: LinearState | None,
    ) -> tuple[Tensor, LinearState | None]:
        q, k = self._features(q), self._features(k)  # (B, h, N, m)
        if ignore is not None:
            k = k.masked_fill(ignore[:, None, :, None], 0.0)
        left, right = rotation.turn(q), rotation.turn(k)
        if not self.causal:
            rows = (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
            return left @ (right.mT @ v) * inverse(rows), None
        state = self._start(q.shape[0], v.shape[-1]) if state is None else state
        before = state.sums
        keys = before.keys.unsqueeze(2) + k.to(before.keys.dtype).cumsum(2)
        heads, _, after = causal_scan(left, right, v, before)
        rows = (q.to(keys.dtype) * keys).sum(-1, keepdim=True).to(q.dtype)
        sums = Sums(after.values, keys[:, :, -1].contiguous())
        return heads * inverse(rows), LinearState(sums, count(state.seen, v, ignore))

    def _features(self, x: Tensor) -> Tensor:
        return _features(x) if self.feature_map is None else self.feature_map.features(x)


def _features(x: Tensor) -> Tensor:
    if is_transformed():  # they differentiate the plain operations
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
