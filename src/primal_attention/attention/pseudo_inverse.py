"""Pseudo-inverses by iteration: products only, so they batch and differentiate."""

from __future__ import annotations

import torch
from torch import Tensor


def third_order(a: Tensor, iterations: int) -> Tensor:
    """The pseudo-inverse of a (..., m, m) by the iteration of Razavi et al. (2014), of order three,

        Z <- 1/4 Z (13 I - A Z (15 I - A Z (7 I - A Z)))

    from Z = A^T / (|A|_1 |A|_inf), each matrix by its own norms.
    """
    z = _start(a)
    one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13.0 * one - az @ (15.0 * one - az @ (7.0 * one - az)))
    return z


def newton(a: Tensor, iterations: int) -> Tensor:
    """The pseudo-inverse of a (..., m, m) by the iteration of Newton and Schulz, of order two,

        Z <- 2 Z - Z A Z

    from Z = A^T / (|A|_1 |A|_inf), each matrix by its own norms.
    """
    z = _start(a)
    for _ in range(iterations):
        z = 2.0 * z - z @ a @ z
    return z


def _start(a: Tensor) -> Tensor:
    """A^T scaled such that no eigenvalue of Z A exceeds 1: |A|_2^2 <= |A|_1 |A|_inf."""
    size = a.abs()
    rows, columns = size.sum(-1).amax(-1), size.sum(-2).amax(-1)
    start: Tensor = a.mT / (rows * columns)[..., None, None]
    return start
