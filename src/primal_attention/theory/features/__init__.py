"""The feature maps phi_q, phi_k of Remark 4.1: a file for each, and their names."""

from __future__ import annotations

import torch

from ...names import unknown
from .base import FeatureMap, SharpMap
from .cosine import SMALLEST_NORM, Cosine
from .elu import Elu, elu_power
from .random import PositiveRandomFeatures
from .shift import GaussianFeatures, InverseQuadraticFeatures
from .softmax import TwoSidedSoftmax

__all__ = [
    "FEATURE_MAPS",
    "SMALLEST_NORM",
    "Cosine",
    "Elu",
    "FeatureMap",
    "GaussianFeatures",
    "InverseQuadraticFeatures",
    "PositiveRandomFeatures",
    "SharpMap",
    "TwoSidedSoftmax",
    "elu_power",
    "make_feature_map",
]

FEATURE_MAPS = (
    "cosine", "elu", "softmax", "exp", "exp-orthogonal", "gaussian", "inverse_quadratic",
)  # fmt: skip


def make_feature_map(
    spec: str | FeatureMap,
    head_dim: int,
    num_heads: int = 1,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> FeatureMap:
    """The feature map of a name in `FEATURE_MAPS`, for heads of a width.

    A `FeatureMap` is returned as it is (`device` and `dtype` are then its own business).
    """
    if isinstance(spec, FeatureMap):
        if spec.head_dim != head_dim:
            raise ValueError(
                f"the feature map is made for head_dim = {spec.head_dim}; expected {head_dim}"
            )
        if isinstance(spec, SharpMap) and spec.num_heads not in (1, num_heads):
            raise ValueError(
                f"the feature map is made for {spec.num_heads} heads; expected {num_heads}, or 1"
            )
        return spec
    if spec == "cosine":
        return Cosine(head_dim)
    if spec == "elu":
        return Elu(head_dim, num_heads, device=device, dtype=dtype)
    if spec == "softmax":
        return TwoSidedSoftmax(head_dim, num_heads, device=device, dtype=dtype)
    if spec in ("exp", "exp-orthogonal"):
        orthogonal = spec == "exp-orthogonal"
        return PositiveRandomFeatures(head_dim, orthogonal=orthogonal, device=device, dtype=dtype)
    if spec in ("gaussian", "inverse_quadratic"):
        kind = GaussianFeatures if spec == "gaussian" else InverseQuadraticFeatures
        return kind(head_dim, device=device, dtype=dtype)
    raise ValueError(f"{unknown('feature map', str(spec), FEATURE_MAPS)}, or a FeatureMap")
