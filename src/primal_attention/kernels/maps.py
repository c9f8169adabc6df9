"""The linear maps of a layer, as the passes take them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Maps(NamedTuple):
    """Linear maps of a layer: queries and keys (2d, d), and scores to output (d, 2h * s)."""

    w_in: Tensor
    b_in: Tensor | None
    w_out: Tensor
    b_out: Tensor
