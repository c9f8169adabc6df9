"""What a model of events is worth on a set: types, gaps, and how well their chances are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from ...analysis.quantiles import shares
from ..classification.evaluate import similar_lengths
from .sets import EventBatch, EventData

TOKENS = 8192  # events of a batch, padding included
SHOWN = 80  # events of the timeline
INTERVAL = (0.1, 0.5, 0.9)  # quantiles of the gaps in the timeline


@dataclass(frozen=True)
class Evaluation:
    """Means over events. `gap_loss` is in nats and in the units of the data, None where the times
    are known. `expected` and `observed` (types,): how often types came, and how often the model
    expected them; `hits`: how often it was right. `pit`: shares of the gaps by the chance that the
    model gave to a shorter one, in 20 equal bins: all equal where the chances are right."""

    accuracy: float
    loss: float
    gap_loss: float | None
    observed: npt.NDArray[np.int64]
    expected: npt.NDArray[np.float64]
    hits: npt.NDArray[np.int64]
    pit: list[float] | None

    @property
    def total(self) -> float:
        return self.loss + (self.gap_loss or 0.0)


def type_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihoods (...) of types, of logits (..., types)."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view_as(
        targets
    )


@torch.inference_mode()
def evaluate(fabric: Fabric, model: nn.Module, data: EventData) -> Evaluation:
    """Evaluate a model, which is left in eval mode. The processes share the batches; every one
    returns the result of all."""
    model.eval()
    kinds = len(data.data.names)
    found = torch.zeros(4, data.data.events, dtype=torch.float64)  # loss, type, gap loss, chance
    expected = torch.zeros(kinds, dtype=torch.float64)
    batches = similar_lengths(data.lengths.numpy(), TOKENS)
    timed = False
    for indices in batches[fabric.global_rank :: fabric.world_size]:
        batch: EventBatch = fabric.to_device(data.__getitems__(indices))
        valid, places = ~batch.padding, data.places(indices)
        made = model(batch.types, batch.times, batch.next_times, batch.padding)
        logits = made.types[valid]
        found[0, places] = type_losses(logits, batch.next_types[valid]).cpu().double()
        found[1, places] = logits.argmax(-1).cpu().double()
        expected += logits.softmax(-1).sum(0).cpu().double()
        if made.gap is not None:
            timed = True
            bare: Any = getattr(model, "module", model)
            gaps = bare.gap_of(batch.gaps)
            found[2, places] = -made.gap.log_prob(gaps)[valid].cpu().double()
            found[3, places] = made.gap.cdf(gaps)[valid].cpu().double()
    if fabric.world_size > 1:
        whole = torch.cat([found.flatten(), expected]).to(fabric.device)
        whole = cast(Tensor, fabric.all_reduce(whole, reduce_op="sum")).cpu()
        found, expected = whole[: found.numel()].view_as(found), whole[found.numel() :]
    true = np.concatenate([types[1:] for types in data.data.types])
    predicted = found[1].long().numpy()
    right = predicted == true
    pit = None
    if timed or (fabric.world_size > 1 and bool(found[3].any())):
        pit = shares(found[3].numpy()).tolist()
    return Evaluation(
        accuracy=float(right.mean()),
        loss=float(found[0].mean()),
        gap_loss=None if pit is None else float(found[2].mean()),
        observed=np.bincount(true, minlength=kinds),
        expected=expected.numpy(),
        hits=np.bincount(true[right], minlength=kinds),
        pit=pit,
    )


@torch.inference_mode()
def timeline(fabric: Fabric, model: nn.Module, data: EventData) -> dict[str, list[Any]]:
    """One sequence, the first of the longest, event by event: its times from the first event on,
    its types, the chance that each type had, the likeliest one, and quantiles of the expected gap.
    """
    model.eval()
    number = int(data.lengths.argmax())
    batch: EventBatch = fabric.to_device(data.__getitems__([number]))
    batch = EventBatch(*(part[:, :SHOWN] for part in batch))
    made = model(batch.types, batch.times, batch.next_times, batch.padding)
    chances = made.types[0].softmax(-1).cpu()
    types = batch.next_types[0].cpu()
    shown: dict[str, list[Any]] = {
        "times": (batch.next_times[0] - batch.times[0, 0]).tolist(),
        "types": types.tolist(),
        "chances": _short(chances.gather(-1, types.unsqueeze(-1)).squeeze(-1)),
        "likeliest": chances.argmax(-1).tolist(),
        "gaps": batch.gaps[0].tolist(),
    }
    if made.gap is not None:
        shown |= {f"gap_{share:g}": _short(made.gap.quantile(share)[0]) for share in INTERVAL}
    return shown


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
