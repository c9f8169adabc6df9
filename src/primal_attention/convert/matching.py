"""How far a converted model is from its original: outputs, and hidden states block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .examples import call_model


class Distance(NamedTuple):
    """Means over the positions that count."""

    outputs: Tensor  # Kullback-Leibler divergence of logits, else relative squared error
    blocks: Tensor  # (blocks,): squared error over the variance of the original's hidden states
    agreement: Tensor  # share of equal predictions, else 1 - relative squared error
    task: Tensor | None  # the model's own loss, where the batch has labels


class Goal(NamedTuple):
    """What the original answers to a batch: rows (positions, width) of those that count."""

    output: Tensor
    blocks: tuple[Tensor, ...]
    logits: bool

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in (self.output, *self.blocks))


@dataclass(frozen=True)
class Pair:
    """The original and the model that is to become like it, and where they are compared."""

    teacher: nn.Module
    student: nn.Module
    blocks: tuple[str, ...]

    @torch.no_grad()
    def goal(self, batch: Any) -> Goal:
        """What the student is to answer."""
        with _hidden(self.teacher, self.blocks) as taught:
            goal = call_model(self.teacher, batch)
        keep = _valid(batch)
        logits = getattr(goal, "logits", None)
        is_logits = isinstance(logits, Tensor) and logits.shape[-1] > 1
        output = logits if is_logits else _first(goal)
        blocks = tuple(_rows(taught[name], keep) for name in self.blocks)
        return Goal(_rows(output, keep), blocks, is_logits)  # type: ignore[arg-type]

    def distance(self, batch: Any, goal: Goal | None = None) -> Distance:
        """Of one batch, with the graph of the student. goal: if it is known already."""
        goal = self.goal(batch) if goal is None else goal
        with _hidden(self.student, self.blocks) as learned:
            found = call_model(self.student, batch)
        keep = _valid(batch)
        pairs = zip(self.blocks, goal.blocks, strict=True)
        blocks = torch.stack([_relative(_rows(learned[name], keep), rows) for name, rows in pairs])
        outputs, agreement = _outputs(found, goal, keep)
        return Distance(outputs, blocks, agreement, own_loss(found))


def block_of(path: str) -> str:
    """The block that an attention belongs to: its path up to the last index, "encoder.layer.3"."""
    parts = path.split(".")
    places = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: places[-1] + 1]) if places else path


@contextmanager
def _hidden(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """What the modules of these names give; of several calls the last."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            found[name] = out[0] if isinstance(out, tuple) else out

        return hook

    hooks = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _valid(batch: Any) -> Tensor | None:
    """(B, N), True where a position counts, by the mask of a batch of keywords."""
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def _rows(tensor: Tensor, keep: Tensor | None) -> Tensor:
    """Rows (positions, width), without those that do not count."""
    if keep is not None and tensor.dim() >= 3 and tensor.shape[:2] == keep.shape:
        return tensor[keep]
    return tensor.reshape(-1, tensor.shape[-1])


def _relative(found: Tensor, goal: Tensor) -> Tensor:
    variance = (goal - goal.mean(0)).square().mean() if len(goal) > 1 else goal.square().mean()
    return (found - goal).square().mean() / variance.clamp(min=torch.finfo(goal.dtype).tiny)


def _outputs(found: Any, goal: Goal, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    if goal.logits:
        rows = _rows(found.logits, keep)
        both = rows.log_softmax(-1), goal.output.log_softmax(-1)
        distance = F.kl_div(*both, log_target=True, reduction="batchmean")
        return distance, (rows.argmax(-1) == goal.output.argmax(-1)).float().mean()
    distance = _relative(_rows(_first(found), keep), goal.output)
    return distance, 1.0 - distance.detach()


def _first(out: Any) -> Tensor:
    """The first tensor of what a model gives."""
    if isinstance(out, Tensor):
        return out
    values = out.values() if isinstance(out, Mapping) else out
    return next(each for each in values if isinstance(each, Tensor) and each.dim() > 0)


def own_loss(found: Any) -> Tensor | None:
    """What a model of transformers gives beside its outputs, where the batch has labels."""
    loss = getattr(found, "loss", None)
    return loss if isinstance(loss, Tensor) else None
