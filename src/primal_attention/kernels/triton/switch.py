"""Whether the Triton kernels serve a call."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import NamedTuple

import torch
from torch import Tensor

from ...theory.features import Cosine, Elu, FeatureMap

COSINE = 0  # the number of the cosine among the kernels' feature maps; else the power of elu + 1
WIDEST = {torch.bfloat16: 128, torch.float32: 64}  # heads and ranks that fit into registers


class Layer(NamedTuple):
    """What of a layer decides, beside its feature map."""

    tied: bool
    rank: int
    dropout: float


def serves(x: Tensor, dtype: torch.dtype, feature_map: FeatureMap, layer: Layer) -> bool:
    """Whether self-attention on x (B, N, d) is one that the kernels know, and they are wanted."""
    if not (x.is_cuda or interpreted()) or os.environ.get("PRIMAL_TRITON") != "1":
        return False
    number = map_number(feature_map)
    return (
        number is not None
        and (number == COSINE or layer.tied)
        and max(feature_map.head_dim, layer.rank) <= WIDEST.get(dtype, 0)
        and x.numel() > 0
        and not layer.dropout
        and _installed()
    )


def map_number(feature_map: FeatureMap) -> int | None:
    """0 for the cosine, b for `(elu + 1)^b` with b = 1 or 2, None for another map."""
    if isinstance(feature_map, Cosine):
        return COSINE
    if not isinstance(feature_map, Elu) or feature_map.log_power is not None:
        return None
    return int(feature_map.power) if feature_map.power in (1, 2) else None


@functools.cache
def interpreted() -> bool:
    """Whether Triton runs its kernels on the CPU, element by element: for tests. It asks once."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
