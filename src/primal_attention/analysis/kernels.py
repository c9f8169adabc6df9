"""Attention matrices that are never held whole: rows on demand, one head at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..theory.precision import widen

Method = Literal["factored", "exact", "randomised"]

_ROW_NUMBERS = 1 << 23  # entries of a matrix formed at a time
_OVERSAMPLING = 32
_POWER_STEPS = 3


@dataclass(frozen=True, eq=False)
class SoftmaxHead:
    """`K_ij = softmax_j(scale <q_i, k_j> + bias)` of one head: q (N, p), k (M, p).

    `ignore (M,)`: keys that nobody sees. `hidden`: pairs (N, M), bool (True = hidden) or float
    (added). `causal`: j > i is hidden. `silent (N,)`: queries whose row is zero; a query that
    sees nothing has a zero row too.
    """

    q: Tensor
    k: Tensor
    scale: float
    ignore: Tensor | None = None
    hidden: Tensor | None = None
    causal: bool = False
    silent: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.q), len(self.k)

    def rows(self, first: int, last: int) -> Tensor:
        q = self.q[first:last]
        scores = (widen(q) * self.scale) @ widen(self.k).mT
        if self.hidden is not None:
            part = self.hidden[first:last]
            if part.dtype == torch.bool:
                scores = scores.masked_fill(part, -torch.inf)
            else:
                scores = scores + part.to(scores.dtype)
        if self.ignore is not None:
            scores = scores.masked_fill(self.ignore, -torch.inf)
        if self.causal:
            keys = torch.arange(len(self.k), device=q.device)
            queries = torch.arange(first, first + len(q), device=q.device)
            scores = scores.masked_fill(keys > queries.unsqueeze(-1), -torch.inf)
        rows: Tensor = scores.softmax(-1)
        blind = (scores == -torch.inf).all(-1)
        if self.silent is not None:
            blind = blind | self.silent[first:last]
        return rows.masked_fill(blind.unsqueeze(-1), 0.0)


@dataclass(frozen=True, eq=False)
class MatrixHead:
    """A matrix that is formed already, (N, M)."""

    matrix: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def rows(self, first: int, last: int) -> Tensor:
        return widen(self.matrix[first:last])


HeadMatrix = SoftmaxHead | MatrixHead  # the matrix K (N, M) of one head of one sample


class Values(NamedTuple):
    """Singular values (k,) descending, and `||K||_F^2`, the total of ALL their squares."""

    sigma: Tensor
    energy: float
    method: Method


@torch.no_grad()
def head_values(head: HeadMatrix, *, exact_size: int, leading: int, seed: int = 0) -> Values:
    """The singular values of one matrix.

    All of them by an exact SVD where the shorter side is at most `exact_size`; else the
    `leading` largest by a randomised one (Halko, Martinsson & Tropp 2011: random projection and
    power steps), which forms a block of rows at a time.
    """
    n, m = head.shape
    if min(n, m) <= exact_size and max(n, m) <= 4 * exact_size:
        matrix = head.rows(0, n)
        sigma = torch.linalg.svdvals(matrix)
        return Values(sigma, float(sigma.double().square().sum()), "exact")
    return _randomised(head, min(leading, n, m), seed)


def _randomised(head: HeadMatrix, leading: int, seed: int) -> Values:
    n, m = head.shape
    like = head.rows(0, 1)
    generator = torch.Generator().manual_seed(seed)
    count = min(leading + _OVERSAMPLING, n, m)
    block = torch.randn(m, count, generator=generator, dtype=torch.float64)
    block = torch.linalg.qr(block.to(device=like.device, dtype=like.dtype)).Q
    step = max(1, _ROW_NUMBERS // m)
    energy = 0.0
    for power in range(_POWER_STEPS + 1):
        image = like.new_empty(n, count)
        for first in range(0, n, step):
            rows = head.rows(first, min(first + step, n))
            image[first : first + step] = rows @ block
            if power == 0:
                energy += float(rows.double().square().sum())
        basis = torch.linalg.qr(image).Q  # (n, count)
        block = like.new_zeros(m, count)  # K^T basis
        for first in range(0, n, step):
            rows = head.rows(first, min(first + step, n))
            block += rows.mT @ basis[first : first + step]
        if power < _POWER_STEPS:
            block = torch.linalg.qr(block).Q
    sigma = torch.linalg.svdvals(block)[:leading]
    return Values(sigma, energy, "randomised")
