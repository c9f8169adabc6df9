"""What a primal layer costs; linear in the length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.dispatch import native_map
from ...kernels.native.library import kernels
from ...kernels.tiles import TILE
from ..cost import Terms

if TYPE_CHECKING:
    from .layer import PrimalAttention
    from .rotary import RotaryPrimalAttention


def primal_cost(
    layer: PrimalAttention | RotaryPrimalAttention, length: int, batch: int = 1
) -> Terms:
    """The products of equation (9), with W_o W_c as one map, which is formed once a call.

    Data-dependent weights add `F_X^T W_e` and `F_X^T W_r`, once a sequence; tied weights add the
    dual variables and the sums `phi h^T`, with positive features their row sums.
    """
    d, h, s = layer.embed_dim, layer.num_heads, layer.rank
    rows, inner, hs = batch * length, h * layer.head_dim, h * s
    features, positive = layer.feature_map.output_dim, layer.feature_map.positive
    flops = rows * (4 * inner * d + 4 * hs * features + 4 * hs * d)  # q and k, scores, output
    flops += 4 * inner * d * s  # W_o W_c
    kept = rows * (d + 2 * inner + 2 * h + 2 * hs)  # x, q and k, their norms, scores or duals
    flops += rows * 4 * h * layer.feature_map.products
    if positive and not has_compiled(layer):  # torch's own operations, which keep every step
        kept += rows * d * layer.feature_map.unit_rows
        if layer.weights == "tied":
            kept += rows * (5 * inner + 4 * h * features)
        else:
            kept += rows * h * features * (6 if layer.feature_map.products else 4)
    if layer.weights == "tied":
        flops += rows * 4 * (hs * d + hs * features + positive * h * features)
    elif layer.weights == "data":
        anchors = layer.anchors or 0  # the fast pass sums the parameters of repeated ones
        flops += batch * 4 * (anchors if positive else min(anchors, length)) * s * inner
    working = 2 * rows * d + min(rows * (2 * d + 2 * inner + 2 * hs), 2 * TILE)
    return Terms(flops, kept, working)


def has_compiled(layer: PrimalAttention | RotaryPrimalAttention) -> bool:
    """Whether compiled kernels serve the positive features of a layer, in training on this CPU."""
    known = layer.weights == "tied" and native_map(layer.feature_map) is not None
    return known and kernels() is not None
