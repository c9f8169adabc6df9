"""The KSVD term of the training loss, equation (10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from .ledger import Entry, Ledger
from .objective import Positions, check_positions, objective


def ksvd_loss(
    model: nn.Module,
    reduction: Literal["mean", "sum"] = "mean",
    *,
    positions: Positions = "mean",
) -> Tensor:
    """`sum_l J_l^2` or `mean_l J_l^2` over the primal layers l of a model, a scalar.

    Call it after the forward pass in training mode and add `eta` times the result to the task loss:

        loss = task_loss + eta * pa.ksvd_loss(model)

    J_l is the mean over heads of (11), squared per sample and averaged over the samples of all
    forwards since the last backward pass (two documents through one encoder count as one batch).
    `positions="mean"` divides the sums over positions by their number, so that eta means the same
    at every length; `"sum"` is the letter of (11). `reduction="sum"` over layers is the letter of
    (10).
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction is {reduction!r}; expected "mean" or "sum"')
    check_positions(positions)
    modules = [(m, getattr(m, "ledger", None)) for m in model.modules()]
    layers = [(m, ledger) for m, ledger in modules if isinstance(ledger, Ledger)]
    if not layers:
        raise ValueError(f"{type(model).__name__} contains no primal attention layer")
    read = [(layer, ledger.read()) for layer, ledger in layers]
    recorded = [(layer, entries) for layer, entries in read if entries]
    if not recorded:
        hint = "" if model.training else "; the model is in eval mode, call model.train()"
        raise RuntimeError(
            "ksvd_loss found no forward pass: call it after model(...) in training mode and before "
            f"loss.backward(){hint}"
        )
    if torch.is_grad_enabled() and any(_lost(layer, entries) for layer, entries in recorded):
        raise RuntimeError(
            "a forward pass ran without gradients, so the KSVD loss cannot train its layer: with "
            "gradient checkpointing pass use_reentrant=False; under torch.no_grad() call ksvd_loss "
            "there too; leave out a part that is not trained by ksvd_loss(part_that_is)"
        )
    losses = [_layer_loss(entries, positions) for _, entries in recorded]
    stacked = torch.stack([loss.to(losses[0].device) for loss in losses])
    return stacked.mean() if reduction == "mean" else stacked.sum()


def _lost(layer: nn.Module, entries: Sequence[Entry]) -> bool:
    """Whether a layer that should learn ran without gradients."""
    without = not all(entry.with_grad for entry in entries)
    return without and any(p.requires_grad for p in layer.parameters())


def _layer_loss(entries: Sequence[Entry], positions: Positions) -> Tensor:
    """The mean over all samples of the squared J of one layer; a sample in which everything is
    masked is none."""
    squares = torch.cat([_sample_objectives(entry, positions).square() for entry in entries])
    there = torch.cat([(entry.count_e > 0) & (entry.count_r > 0) for entry in entries])
    return torch.where(there, squares, 0.0).sum() / there.sum().clamp(min=1)


def _sample_objectives(entry: Entry, positions: Positions) -> Tensor:
    """(B,): J, averaged over heads, of every sample."""
    energy_e, energy_r, trace = entry.terms
    if positions == "sum":
        return objective(energy_e, energy_r, trace, positions="sum").mean(-1)
    count_e, count_r = entry.count_e.unsqueeze(-1), entry.count_r.unsqueeze(-1)
    return objective(energy_e, energy_r, trace, count_e=count_e, count_r=count_r).mean(-1)
