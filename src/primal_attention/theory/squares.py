"""The sum over layers of the mean over samples of `J_l^2` (equation 10): plainly, and in four
operations for all layers of a shape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .entry import Entry
from .objective import Positions
from .transforms import is_transformed

Square = Literal["sample", "batch"]  # what is squared: J of each sample, or their mean


def sum_of_squares(
    layers: Sequence[Entry], positions: Positions, share: float, square: Square = "sample"
) -> Tensor:
    """`share * sum_l mean_b J_l^2`, or of the batch `share * sum_l (mean_b J_l)^2`, a scalar. An
    entry holds all samples of one layer."""
    if square == "batch" or not _few_operations_serve(layers):
        return plain_sum_of_squares(layers, positions, share, square)
    squares = [entry.square for entry in layers if entry.square is not None]
    if positions == "mean" and len(squares) == len(layers):  # the passes made them already
        whole = squares[0] if len(squares) == 1 else torch.stack(squares).sum()
        return whole if share == 1.0 else share * whole
    shapes: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in layers:
        shape = entry.terms.shape, entry.terms.dtype, _common_counts(entry)
        shapes.setdefault(shape, []).append(entry)
    sums = [_squares(alike, positions, share) for alike in shapes.values()]
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _few_operations_serve(layers: Sequence[Entry]) -> bool:
    """Not where a graph is traced or transformed, nor over several devices."""
    if torch.compiler.is_compiling() or is_transformed():
        return False
    return len({entry.terms.device for entry in layers}) == 1


# -- plainly: the truth of the closed form ---------------------------------------------------------


def plain_sum_of_squares(
    layers: Sequence[Entry], positions: Positions, share: float, square: Square = "sample"
) -> Tensor:
    """The same in differentiable operations."""
    losses = [_layer_loss(entry, positions, square) for entry in layers]
    return share * torch.stack([loss.to(losses[0].device) for loss in losses]).sum()


def _layer_loss(entry: Entry, positions: Positions, square: Square) -> Tensor:
    """The mean over samples of the squared mean over heads of J, or the square of the mean."""
    j, present = entry.objectives(positions).mean(-1), entry.present()
    values = j.square() if square == "sample" else j
    mean = torch.where(present, values, 0.0).sum() / present.sum().clamp(min=1)
    return mean if square == "sample" else mean.square()


# -- in few operations -----------------------------------------------------------------------------
# J is linear in the terms. With factors that contain the square root of the weight of a sample, the
# loss is a sum of squares. Each operation costs more than its numbers, and a node written in Python
# more than all of these.


def _squares(layers: Sequence[Entry], positions: Positions, share: float) -> Tensor:
    """Of layers whose terms (3, B, h) have one shape, and one count if counts are common."""
    terms = layers[0].terms
    if len(layers) > 1:
        terms = torch.stack([entry.terms for entry in layers], dim=1)  # (3, L, B, h)
    if _common_counts(layers[0]) is None:
        present, factors = _factors_of_samples(layers, positions, share)
        terms = torch.where(present, terms, 0.0)
    else:
        factors = _common_factors(layers[0], positions, share, terms.dim())
    j = (terms * factors).sum((0, -1)).flatten()
    return j.dot(j)


def _common_counts(entry: Entry) -> tuple[int, int] | None:
    """The numbers of queries and keys where all samples have the same."""
    count_e, count_r = entry.count_e, entry.count_r
    if isinstance(count_e, Tensor) or isinstance(count_r, Tensor) or not (count_e and count_r):
        return None
    return count_e, count_r


def _common_factors(entry: Entry, positions: Positions, share: float, dims: int) -> Tensor:
    """(3, 1, ..., 1)."""
    (_, samples, heads), terms = entry.terms.shape, entry.terms
    half_e, half_r = 0.5, 0.5
    if positions == "mean":
        half_e, half_r = 0.5 / entry.count_e, 0.5 / entry.count_r  # type: ignore[assignment]
    scale = (share / max(samples, 1)) ** 0.5 / heads
    factors = half_e * scale, half_r * scale, -scale
    # a mode that watches operations may have tensors of its own kind
    make = _column.__wrapped__ if torch._C._len_torch_dispatch_stack() else _column
    return make(factors, dims, terms.dtype, terms.device)


@functools.lru_cache(maxsize=64)
def _column(
    numbers: tuple[float, ...], dims: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Remembered: to make it takes as long as the rest of the loss."""
    with torch.inference_mode(False):  # else no later graph could use it
        return torch.tensor(numbers, dtype=dtype, device=device).view(-1, *[1] * (dims - 1))


def _factors_of_samples(
    layers: Sequence[Entry], positions: Positions, share: float
) -> tuple[Tensor, Tensor]:
    """Which samples there are, (L, B, 1), and the factors of their terms, (3, L, B, 1), without L
    for a single layer."""
    terms = layers[0].terms
    counts_e, counts_r = zip(*[entry.counts() for entry in layers], strict=True)
    counts = torch.stack([torch.stack(counts_e), torch.stack(counts_r)]).unsqueeze(-1)
    if len(layers) == 1:
        counts = counts.squeeze(1)
    present = (counts > 0).all(0)
    weight = share / present.sum(-2, keepdim=True).clamp(min=1).to(terms.dtype)
    scale = (weight.sqrt() / terms.shape[2]).expand_as(present)
    halves = 0.5 * scale
    if positions == "mean":
        halves = halves / counts.clamp(min=1)
    return present, torch.cat([halves.expand_as(counts), -scale.unsqueeze(0)])
