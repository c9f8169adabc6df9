"""The KSVD term of the training loss, equation (10)."""

from __future__ import annotations

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
    ledgers = [m.ledger for m in model.modules() if isinstance(getattr(m, "ledger", None), Ledger)]
    if not ledgers:
        raise ValueError(f"{type(model).__name__} contains no primal attention layer")
    recorded = [entries for entries in (ledger.read() for ledger in ledgers) if entries]
    if not recorded:
        hint = "" if model.training else "; the model is in eval mode, call model.train()"
        raise RuntimeError(
            "ksvd_loss found no forward pass: call it after model(...) in training mode and before "
            f"loss.backward(){hint}"
        )
    losses = torch.stack([_layer_loss(entries, positions) for entries in recorded])
    if torch.is_grad_enabled() and not losses.requires_grad and _trainable(model):
        raise RuntimeError(
            "the forward pass ran without gradients, so the KSVD loss cannot train anything: with "
            "gradient checkpointing pass use_reentrant=False; under torch.no_grad() call ksvd_loss "
            "there too"
        )
    return losses.mean() if reduction == "mean" else losses.sum()


def _layer_loss(entries: tuple[Entry, ...], positions: Positions) -> Tensor:
    """The mean over all samples of the squared J of one layer."""
    squares = [_sample_objectives(entry, positions).square() for entry in entries]
    return torch.cat(squares).mean()


def _sample_objectives(entry: Entry, positions: Positions) -> Tensor:
    """(B,): J, averaged over heads, of every sample."""
    energy_e, energy_r, trace = entry.terms
    if positions == "sum":
        return objective(energy_e, energy_r, trace, positions="sum").mean(-1)
    counts = {"count_e": entry.count_e.unsqueeze(-1), "count_r": entry.count_r.unsqueeze(-1)}
    return objective(energy_e, energy_r, trace, **counts).mean(-1)


def _trainable(model: nn.Module) -> bool:
    return any(p.requires_grad for p in model.parameters())
