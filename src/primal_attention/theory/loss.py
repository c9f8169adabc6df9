"""The KSVD term of the training loss, equation (10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from .entry import Entry
from .ledger import Ledger
from .objective import Positions, check_positions
from .squares import Square, sum_of_squares

Growth = Literal["square", "log"]  # of the loss with J
_SQUARES, _GROWTHS = get_args(Square), get_args(Growth)


def ksvd_loss(
    model: nn.Module,
    reduction: Literal["mean", "sum"] = "mean",
    *,
    positions: Positions = "mean",
    square: Square = "sample",
    growth: Growth = "square",
) -> Tensor:
    """`sum_l J_l^2` or `mean_l J_l^2` over the primal layers l of a model, a scalar.

    Call it after the forward pass in training mode and add `eta` times the result to the task loss:

        loss = task_loss + eta * pa.ksvd_loss(model)

    J_l is the mean over heads of (11), squared per sample and averaged over the samples of all
    forwards since the last backward pass (two documents through one encoder count as one batch).
    `positions="mean"` divides the sums over positions by their number, so that eta means the same
    at every length; `"sum"` is the letter of (11). `reduction="sum"` over layers is the letter of
    (10). `square="batch"` squares the mean of J_l over the samples instead, as the published code
    of the Long-Range Arena does: it is 0 also where J cancels between samples. `growth="log"`
    gives log(1 + loss): the same near 0, but a loss that begins large, as with sharp positive
    features, no longer outweighs the task in the first steps.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction is {reduction!r}; expected "mean" or "sum"')
    check_positions(positions)
    if square not in _SQUARES:
        raise ValueError(f'square is {square!r}; expected "sample" or "batch"')
    if growth not in _GROWTHS:
        raise ValueError(f'growth is {growth!r}; expected "square" or "log"')
    modules = [(m, vars(m).get("ledger")) for m in model.modules()]
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
    share = 1.0 / len(recorded) if reduction == "mean" else 1.0
    layers_seen = [_joined(entries) for _, entries in recorded]
    return grown(sum_of_squares(layers_seen, positions, share, square), growth)


def grown(loss: Tensor, growth: Growth) -> Tensor:
    """The loss itself, or log(1 + loss)."""
    return loss.log1p() if growth == "log" else loss


def _lost(layer: nn.Module, entries: Sequence[Entry]) -> bool:
    """Whether a layer that should learn ran without gradients."""
    without = not all(entry.with_grad for entry in entries)
    return without and any(p.requires_grad for p in layer.parameters())


def _joined(entries: Sequence[Entry]) -> Entry:
    """All samples of the forwards of one layer."""
    if len(entries) == 1:
        return entries[0]
    counts_e, counts_r = zip(*[entry.counts() for entry in entries], strict=True)
    terms = torch.cat([entry.terms for entry in entries], dim=1)
    return Entry(terms, torch.cat(counts_e), torch.cat(counts_r))
