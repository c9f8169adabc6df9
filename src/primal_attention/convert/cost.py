"""What an attention costs: floating-point operations for one sequence, a multiply-add being two."""

from __future__ import annotations

from typing import Any

from ..adapters.base import Source


def softmax_flops(source: Source, length: int) -> int:
    """Projections of q, k, v and output, then `Q K^T` and `P V` between all pairs of positions."""
    inner, width = source.query.weight.shape
    projections = 2 * inner + 2 * inner // source.groups  # rows of W_q and W_o, of W_k and W_v
    return 2 * length * projections * width + 4 * length * length * inner


def primal_flops(source: Source, settings: dict[str, Any], length: int) -> int:
    """Projections of q and k, scores e and r, and W_o W_c as one map; linear in the length.

    Data-dependent weights add `F_X^T W_e`, `F_X^T W_r` once a sequence; tied weights add the dual
    variables and the sums `phi h^T`.
    """
    inner, width = source.query.weight.shape
    scores = 2 * source.num_heads * settings["rank"]  # numbers a position: s for e and r each
    flops = 2 * length * (2 * inner * width + scores * source.head_dim + scores * width)
    if settings["weights"] == "data":
        anchors = settings["anchors"] or settings["rank"] * settings["rank_multi"]
        flops += 2 * min(anchors, length) * scores * source.head_dim
    elif settings["weights"] == "tied":
        flops += 2 * length * scores * (width + source.head_dim)
    return int(flops)
