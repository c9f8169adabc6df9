"""The sum over layers of the mean over samples of `J_l^2` (equation 10): plainly, and as one node
of the graph with a closed form for all layers of a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .entry import Count, Entry
from .objective import Positions

Square = Literal["sample", "batch"]  # what is squared: J of each sample, or their mean


def sum_of_squares(
    layers: Sequence[Entry], positions: Positions, share: float, square: Square = "sample"
) -> Tensor:
    """`share * sum_l mean_b J_l^2`, or of the batch `share * sum_l (mean_b J_l)^2`, a scalar. An
    entry holds all samples of one layer."""
    if square == "batch" or not _one_node_serves(layers):
        return plain_sum_of_squares(layers, positions, share, square)
    shapes: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in layers:
        shape = entry.terms.shape, entry.terms.dtype, _common_counts(entry)
        shapes.setdefault(shape, []).append(entry)
    sums = [
        _SumOfSquares.apply(
            common or _stacked_counts(alike), positions, share, *[entry.terms for entry in alike]
        )
        for (_, _, common), alike in shapes.items()
    ]
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _one_node_serves(layers: Sequence[Entry]) -> bool:
    """Not where a graph is traced or transformed, nor over several devices."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not (torch.is_grad_enabled() and any(entry.terms.requires_grad for entry in layers)):
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


# -- in closed form --------------------------------------------------------------------------------


def _common_counts(entry: Entry) -> tuple[int, int] | None:
    """The numbers of queries and keys where all samples have the same."""
    count_e, count_r = entry.count_e, entry.count_r
    if isinstance(count_e, Tensor) or isinstance(count_r, Tensor) or not (count_e and count_r):
        return None
    return count_e, count_r


def _stacked_counts(layers: Sequence[Entry]) -> tuple[Tensor, Tensor]:
    """The valid queries and keys of every sample, (L, B) each."""
    counts_e, counts_r = zip(*[entry.counts() for entry in layers], strict=True)
    stacked = torch.stack(counts_e)
    same = all(count_r is count_e for count_e, count_r in zip(counts_e, counts_r, strict=True))
    return stacked, stacked if same else torch.stack(counts_r)


class _SumOfSquares(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, counts: tuple[Count, Count], positions: Positions, share: float, *terms: Tensor
    ) -> Tensor:
        ctx.options = counts, positions, share
        total, slope = _evaluate(torch.stack(terms), *ctx.options)
        ctx.save_for_backward(slope, *terms)
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        slope, *terms = ctx.saved_tensors
        if torch.is_grad_enabled():  # it is to be differentiated itself
            _, slope = _evaluate(torch.stack(terms), *ctx.options)
        gradients = (slope * g).unsqueeze(-1).expand(-1, *terms[0].shape)
        return None, None, None, *gradients.unbind(0)


def _evaluate(
    terms: Tensor, counts: tuple[Count, Count], positions: Positions, share: float
) -> tuple[Tensor, Tensor]:
    """`share * sum_l mean_b J_l^2` of terms (L, 3, B, h), and its derivative, alike for all heads:
    (L, 3, B). Differentiable, in few operations: each costs more than its numbers."""
    (count_e, count_r), (samples, heads) = counts, terms.shape[2:]
    half_e = _half(count_e, positions, terms.dtype) / heads
    energy_e, energy_r, trace = terms.sum(-1).unbind(1)  # (L, B) each
    if positions == "sum" or count_r is count_e:
        half_r, energies = half_e, (energy_e + energy_r) * half_e
    else:
        half_r = _half(count_r, positions, terms.dtype) / heads
        energies = energy_e * half_e + energy_r * half_r
    j = torch.sub(energies, trace, alpha=1.0 / heads)
    weight: Tensor | float = share / max(samples, 1)
    if isinstance(count_e, Tensor) and isinstance(count_r, Tensor):
        present = count_e > 0 if count_r is count_e else (count_e > 0) & (count_r > 0)
        j = torch.where(present, j, 0.0)
        weight = share / present.sum(-1, keepdim=True).clamp(min=1).to(terms.dtype)  # (L, 1)
    weighted = j * weight
    slope_e = weighted * (2.0 * half_e)
    slope_r = slope_e if half_r is half_e else weighted * (2.0 * half_r)
    slope = torch.stack([slope_e, slope_r, weighted * (-2.0 / heads)], dim=1)
    return (weighted * j).sum(), slope


def _half(count: Count, positions: Positions, dtype: torch.dtype) -> Tensor | float:
    """What multiplies an energy in J; anything where there are no positions."""
    if positions == "sum":
        return 0.5
    return 0.5 / (count.clamp(min=1).to(dtype) if isinstance(count, Tensor) else count)
