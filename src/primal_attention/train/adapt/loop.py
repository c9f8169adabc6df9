"""One adaptation of a converted model: its layers by themselves, then the whole model against the
original, with evaluations, early stopping and checkpoints."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.converted import Converted
from ...convert import converted_layers, distill_
from ...convert.examples import call_model
from ...convert.matching import Distance, Pair
from .. import checkpoint
from .memory import Memory
from .settings import Adaptation, AdaptSettings, Evaluation

Tell = Callable[[int, int, str], None]
TIMES = 4  # that a layer, by itself, sees a batch: it would learn few batches by heart


class Run:
    """Called with the names of the converted layers and a folder for checkpoints, or None."""

    def __init__(
        self,
        model: nn.Module,
        pair: Pair,
        train: list[Any],
        held_out: list[Any],
        settings: AdaptSettings,
        quality: Callable[[nn.Module], float] | None,
        tell: Tell | None,
        new: list[Converted],
    ) -> None:
        self.model, self.pair, self.train, self.held_out = model, pair, train, held_out
        self.memory: Memory | None = None
        self.settings, self.quality = settings, quality
        self.tell = tell or (lambda step, steps, text: None)
        self.found = Adaptation((), pair.blocks)
        self.best: dict[str, Tensor] = {}
        self.new = new  # the layers that are converted now

    def __call__(self, names: tuple[str, ...], folder: Path | None) -> Adaptation:
        settings = self.settings
        self.found.layers = names
        frozen = _before(self.model, self.train[0])
        used = [p for p in self.model.parameters() if p.requires_grad and id(p) not in frozen]
        others = [p for p in self.model.parameters() if p.requires_grad and id(p) in frozen]
        inside = {id(p) for layer in converted_layers(self.model) for p in layer.parameters()}
        groups = [[p for p in used if (id(p) in inside) == new] for new in (False, True)]
        optimizer = torch.optim.AdamW(
            [{"params": group} for group in groups], lr=settings.lr, weight_decay=0.0
        )
        try:
            for parameter in others:  # no gradient is computed for them
                parameter.requires_grad_(False)
            self.memory = Memory(self.pair, [*self.train, *self.held_out], settings.remember)
            start = self._resume(folder, optimizer)
            if start is None:
                start = self._begin()
            self._learn(start, optimizer, used, folder)
        finally:
            for parameter in others:
                parameter.requires_grad_(True)
        self.model.load_state_dict(self.best)
        return self.found

    def _begin(self) -> int:
        """The first evaluation, and every layer by itself."""
        settings = self.settings
        self.found.original = None if self.quality is None else self.quality(self.pair.teacher)
        self._evaluate(0)
        if settings.layerwise:
            self.tell(0, settings.steps, "layer by layer")
            few = self.train[:: math.ceil(len(self.train) * TIMES / settings.layerwise)]
            told = lambda done, layers, text: self.tell(0, settings.steps, text)  # noqa: E731
            distill_(self.model, few, only=self.new, steps=settings.layerwise, lr=5e-3, tell=told)
            self._evaluate(0)
        return 0

    def _learn(
        self,
        start: int,
        optimizer: torch.optim.Optimizer,
        parameters: list[nn.Parameter],
        folder: Path | None,
    ) -> None:
        settings = self.settings
        for step in range(start, settings.steps):
            if self._is_over():
                return
            share = settings.lr * _schedule(step, settings.steps)
            for group, factor in zip(
                optimizer.param_groups, (1.0, settings.converted), strict=True
            ):
                group["lr"] = factor * share
            loss = self._loss(self._distance(_order(settings.seed, step, len(self.train))))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            self.tell(step + 1, settings.steps, f"loss {float(loss.detach()):.4f}")
            if (step + 1) % settings.every == 0 or step + 1 == settings.steps:
                self._evaluate(step + 1)
                if folder is not None:
                    self._save(folder, step + 1, optimizer)
        optimizer.zero_grad()
        self.found.ended = self.found.ended or "all steps were done"

    def _loss(self, distance: Distance) -> Tensor:
        loss = distance.outputs + self.settings.hidden * distance.blocks.mean()
        if self.settings.task and distance.task is not None:
            loss = loss + self.settings.task * distance.task
        return loss

    def _distance(self, number: int) -> Distance:
        """Of a batch of both parts, those that are held out last."""
        if self.memory is None:
            raise RuntimeError("no batch is known; expected a run that has begun")
        return self.memory.distance(number)

    @torch.no_grad()
    def _evaluate(self, step: int) -> None:
        first = len(self.train)
        found = [self._distance(number) for number in range(first, first + len(self.held_out))]
        outputs = float(torch.stack([distance.outputs for distance in found]).mean())
        agreement = float(torch.stack([distance.agreement for distance in found]).mean())
        blocks = torch.stack([distance.blocks for distance in found]).mean(0)
        loss = float(torch.stack([self._loss(distance) for distance in found]).mean())
        quality = None if self.quality is None else self.quality(self.model)
        self.found.history.append(
            Evaluation(step, loss, outputs, agreement, tuple(blocks.tolist()), quality)
        )
        if not math.isfinite(loss):
            raise ValueError(f"the loss on held-out batches is {loss}; expected a smaller lr")
        if not self.best or loss < min(each.loss for each in self.found.history[:-1]):
            self.found.best = step
            self.best = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        own = "" if quality is None else f", quality {quality:.4f}"
        text = f"held out: loss {loss:.4f}, agreement {agreement:.4f}{own}"
        self.tell(step, self.settings.steps, text)

    def _is_over(self) -> bool:
        past = [each for each in self.found.history if each.step > self.found.best]
        if len(past) < self.settings.patience:
            return False
        self.found.ended = f"no evaluation after step {self.found.best} was better"
        return True

    # -- resuming ----------------------------------------------------------------------------------

    def _save(self, folder: Path, step: int, optimizer: torch.optim.Optimizer) -> None:
        tensors, scalars = checkpoint.optimizer_state(self.model, optimizer)
        state = {"step": step, "found": self.found.to_json(), "settings": _told(self.settings)}
        folder.mkdir(parents=True, exist_ok=True)
        weights = _apart(self.model.state_dict())
        checkpoint.save(
            folder, step, checkpoint.Checkpoint(weights, tensors, scalars, state, _apart(self.best))
        )

    def _resume(self, folder: Path | None, optimizer: torch.optim.Optimizer) -> int | None:
        last = None if folder is None else checkpoint.load_latest(folder)
        if last is None:
            return None
        found = Adaptation.from_json(last.state["found"])
        if last.state["settings"] != _told(self.settings) or found.layers != self.found.layers:
            raise ValueError(
                f"{folder} holds an adaptation with other settings or layers; expected the same, "
                "or another folder"
            )
        self.model.load_state_dict(last.weights)
        checkpoint.load_optimizer_state(self.model, optimizer, last.optimizer, last.scalars)
        self.found, self.best = found, last.best
        return int(last.state["step"])


def _told(settings: AdaptSettings) -> dict[str, Any]:
    """The settings that decide what comes out of a turn."""
    left_out = ("remember", "one_by_one")
    return {name: each for name, each in asdict(settings).items() if name not in left_out}


def _schedule(step: int, steps: int) -> float:
    """A share of the learning rate: it rises over a twentieth of the steps, then falls to zero."""
    warm = max(1, steps // 20)
    return min((step + 1) / warm, (steps - step) / max(1, steps - warm))


def _order(seed: int, step: int, count: int) -> int:
    """Which batch a step takes: every epoch has an order of its own, known from its number."""
    order = list(range(count))
    random.Random(f"{seed} {step // count}").shuffle(order)
    return order[step % count]


def _before(model: nn.Module, batch: Any) -> set[int]:
    """The parameters that are used before the first converted layer, also if they are used again
    after it: by identity."""
    inside = {m for layer in converted_layers(model) for m in layer.modules()}
    reached = False
    early: set[int] = set()

    def see(module: nn.Module, args: Any) -> None:
        nonlocal reached
        reached = reached or module in inside
        if not reached:  # a module may use the parts of it without a call, as torch's attention
            whole = inside.isdisjoint(module.modules())
            early.update(id(p) for p in module.parameters(recurse=whole))

    hooks = [module.register_forward_pre_hook(see) for module in model.modules()]
    try:
        with torch.no_grad():
            call_model(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return early - {id(p) for m in inside for p in m.parameters(recurse=False)}


def _apart(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies, since tied weights are one tensor under two names."""
    return {name: tensor.detach().clone() for name, tensor in named.items()}
