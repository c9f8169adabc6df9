"""The kernels' grids and blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import backward, forward
from .switch import interpreted

PROGRAMS = 512  # a few for every multiprocessor, among which the sums over positions are split


class Shape(NamedTuple):
    """A call: queries and keys (B, N, sides, head_dim), and what the kernels are compiled for."""

    batch: int
    length: int
    sides: int
    head_dim: int
    rank: int
    feature_map: int
    half: bool  # whether the numbers are in half precision
    amd: bool = torch.version.hip is not None

    @property
    def positions(self) -> int:
        """Of a tile: what the registers hold (see `benchmarks/triton_compile.py`)."""
        most = 64 if self.half and self.head_dim <= 64 else 32
        return most // 2 if self.amd else most

    def channels(self, width: int) -> int:
        """Of the output of some width, that one program writes."""
        return min(block(width), 128 if self.half else 64)

    @property
    def tiles(self) -> int:
        return -(-self.length // self.positions)

    @property
    def splits(self) -> int:
        """Parts into which the sum over positions of one sample and side is split."""
        return min(self.tiles, -(-PROGRAMS // (self.batch * self.sides)))

    def constants(self, hidden: Tensor | None) -> dict[str, Any]:
        return {
            "SIDES": self.sides, "HP": self.head_dim, "S": self.rank,
            "BM": self.positions, "BP": block(self.head_dim), "BS": block(self.rank),
            "MAP": self.feature_map, "MASK": hidden is not None,
            "PREC": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
            "CAST": interpreted(), "num_warps": 8,
            "num_stages": 1 if self.amd else 2 if self.half else 3,
        }  # fmt: skip


def block(size: int) -> int:
    """The power of two that holds a size; products need 16."""
    return max(16, 1 << (size - 1).bit_length())


def output(
    shape: Shape,
    qk: Tensor,
    weights: Tensor,
    sums: Tensor | None,
    w_out: Tensor,
    b_out: Tensor,
    hidden: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output (B, N, d) and the sums of squared scores (B, sides, s)."""
    d = w_out.shape[0]
    channels = shape.channels(d)
    out = qk.new_empty(shape.batch, shape.length, d)
    energy = _wide(qk, shape.tiles, shape.batch, shape.sides, shape.rank)
    grid = (shape.tiles, shape.batch, -(-d // channels))
    forward.output[grid](
        qk, weights, _or(sums, qk), w_out.t().contiguous(), b_out, _or(hidden, qk), out, energy,
        shape.length, 0 if len(weights) == 1 else shape.sides,
        D=d, BD=channels, **shape.constants(hidden),
    )  # fmt: skip
    return out, energy.sum(0)


def tied_sums(
    shape: Shape, qk: Tensor, dual: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """`sum_j h phi^T` (B, sides, s, p), and of positive features `sum_j phi` (B, sides, p)."""
    weights, sums = _sums_buffers(shape, qk)
    forward.tied_sums[(shape.splits, shape.batch * shape.sides)](
        qk, dual, _or(hidden, qk), weights, _or(sums, qk), shape.length, **shape.constants(hidden)
    )
    return weights.sum(0), None if sums is None else sums.sum(0)


def weight_gradients(
    shape: Shape,
    qk: Tensor,
    weights: Tensor,
    sums: Tensor | None,
    d_scores: Tensor,
    d_energy: Tensor,
    hidden: Tensor | None,
    *,
    tied: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The scores (B, N, sides * s), the gradients of the weights (B, sides, s, p) and of the sums
    (B, sides, p), and with fixed weights that of qk."""
    found, d_qk = torch.empty_like(d_scores), None if tied else torch.empty_like(qk)
    d_weights, d_sums = _sums_buffers(shape, qk)
    backward.weight_gradients[(shape.splits, shape.batch * shape.sides)](
        qk, weights, _or(sums, qk), d_scores, d_energy, _or(hidden, qk), found,
        d_weights, _or(d_sums, qk), _or(d_qk, qk),
        shape.length, 0 if len(weights) == 1 else shape.sides,
        TIED=tied, **shape.constants(hidden),
    )  # fmt: skip
    return found, d_weights.sum(0), None if d_sums is None else d_sums.sum(0), d_qk


def tied_gradients(
    shape: Shape,
    qk: Tensor,
    dual: Tensor,
    weights: Tensor,
    sums: Tensor | None,
    d_scores: Tensor,
    d_energy: Tensor,
    hidden: Tensor | None,
    d_weights: Tensor,
    d_sums: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of qk and of the dual variables."""
    d_qk, d_dual = torch.empty_like(qk), torch.empty_like(dual)
    backward.tied_gradients[(shape.tiles, shape.batch * shape.sides)](
        qk, dual, weights, _or(sums, qk), d_scores, d_energy, _or(hidden, qk),
        d_weights, _or(d_sums, qk), d_qk, d_dual, shape.length, **shape.constants(hidden),
    )  # fmt: skip
    return d_qk, d_dual


def _sums_buffers(shape: Shape, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Room for the parts of sums over positions: of weights, and of positive features."""
    first = shape.splits, shape.batch, shape.sides
    weights = _wide(like, *first, shape.rank, shape.head_dim)
    return weights, _wide(like, *first, shape.head_dim) if shape.feature_map else None


def _wide(like: Tensor, *size: int) -> Tensor:
    return like.new_empty(size, dtype=torch.float32)


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """An address for an argument that is not read."""
    return other if tensor is None else tensor
