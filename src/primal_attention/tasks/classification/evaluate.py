"""Accuracy and loss on a set, with large batches of series of similar length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..examples import Examples

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TOKENS = 2048  # positions of a batch, padding included; more would leave the cache


@dataclass(frozen=True)
class Evaluation:
    """Means over the cases; `confusion` (classes, classes): rows are true, columns predicted."""

    accuracy: float
    loss: float
    confusion: npt.NDArray[np.int64]


@torch.inference_mode()
def evaluate(
    fabric: Fabric, model: nn.Module, data: Examples, *, tokens: int = TOKENS
) -> Evaluation:
    """Evaluate a model, which is left in eval mode. The processes share the batches; every one
    returns the result of all."""
    model.eval()
    # each process fills in its cases; the sum over processes then has them all, exactly
    found = torch.zeros(2, len(data), dtype=torch.float64)  # loss, predicted class
    batches = similar_lengths(data.lengths.numpy(), tokens)
    for indices in batches[fabric.global_rank :: fabric.world_size]:
        batch = fabric.to_device(data.__getitems__(indices))
        logits = model(batch.inputs, batch.padding)
        losses = F.cross_entropy(logits, batch.targets, reduction="none")
        found[0, indices] = losses.cpu().double()
        found[1, indices] = logits.argmax(-1).cpu().double()
    if fabric.world_size > 1:
        everything = fabric.all_reduce(found.to(fabric.device), reduce_op="sum")
        found = cast(Tensor, everything).cpu()
    loss, predicted = float(found[0].mean()), found[1].long().numpy()
    true, classes = data.targets.numpy(), len(data.classes)
    counts = np.bincount(true * classes + predicted, minlength=classes**2).astype(np.int64)
    confusion = counts.reshape(classes, classes)
    return Evaluation(float(np.trace(confusion) / len(data)), loss, confusion)


def similar_lengths(lengths: npt.NDArray[np.int64], tokens: int) -> list[list[int]]:
    """Indices of batches with at most `tokens` positions once padded, or of one series."""
    order = np.argsort(-lengths, kind="stable").tolist()  # a batch is as long as its first
    batches, first = [], 0
    while first < len(order):
        size = max(1, tokens // int(lengths[order[first]]))
        batches.append(order[first : first + size])
        first += size
    return batches
