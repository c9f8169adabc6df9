"""What one call of a layer costs: the result of the method `cost` of a mechanism.

The call is self-attention of a batch of sequences of one length, without padding and dropout, and
not causal. A mechanism without a method `cost` has no formula, and is left out where costs are
compared. Shapes are those of the layer, so options need no second list: a formula reads them from
the layer itself.
"""

from __future__ import annotations

from typing import NamedTuple


class Terms(NamedTuple):
    """flops: those of the matrix products of one forward, two for a multiply-add, as torch's
    counter counts them; element-wise work is not in them. kept: numbers that a forward in training
    keeps for the backward pass, the input included. working: numbers alive at the peak of a forward
    without gradient, input and output included. Parameters are in neither."""

    flops: int
    kept: int
    working: int
