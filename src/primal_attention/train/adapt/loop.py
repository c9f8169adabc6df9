"""Conversion and recovery: layer by layer against the originals, then the whole model against it.

The teacher is the model as it was before: labels are not needed.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.converted import Converted, evaluation
from ...convert import Plan, convert_, converted_layers, distill_, plan
from ...convert.examples import call_model
from ...convert.matching import Distance, Pair, block_of
from ...convert.sites import paths
from ...theory.seeds import seeded
from .. import checkpoint
from .memory import Memory
from .settings import Adaptation, AdaptSettings, Evaluation

Tell = Callable[[int, int, str], None]
MEASURED = 8  # batches of a measured plan, at most
BATCHES = 64  # of the layers' own training, at most


def adapt_(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layers: Any = "last",
    count: int | None = None,
    held_out: Iterable[Any] | None = None,
    teacher: nn.Module | None = None,
    quality: Callable[[nn.Module], float] | None = None,
    settings: AdaptSettings | None = None,
    folder: Path | str | None = None,
    tell: Tell | None = None,
    **options: Any,
) -> Adaptation:
    """Convert attentions of a model in place and train it to do what it did before.

        found = adapt_(model, batches, layers=slice(-4, None), rank=32)
        print(found.before.agreement, found.after.agreement)

    batches: inputs of the model, as `distill_` takes them. held_out: others, on which it is judged;
    None takes every tenth of the batches. count: only so many attentions, those that `plan` finds
    to change the outputs least. teacher: the model to become like, by default the model
    as it is now; one that is given stays as it is. A model of which some layers are converted
    already keeps them. quality: a measure of your own, read at every evaluation; nothing is chosen
    by it. folder: checkpoints go there, and an adaptation that was interrupted continues from the
    last. tell(step, steps, text) hears how far it is. layers and options: those of `convert_`.

    First every converted layer learns its original's outputs, then the whole model learns the
    teacher's outputs and hidden states, by AdamW without dropout. What is used before the first
    converted layer stays as it is, tied embeddings too. What does not change, the teacher's answers
    and the states before that layer, is computed once for every batch, as far as there is room
    (`AdaptSettings.remember`). The weights of the best evaluation stay in the model.
    """
    chosen = settings or AdaptSettings()
    train, judged = _split(list(batches), held_out)
    teacher = copy.deepcopy(model) if teacher is None or teacher is model else teacher
    old = set(converted_layers(model))
    with seeded(chosen.seed):  # what has no weight to start from is drawn
        if count is not None:  # among all of them, unless layers says otherwise
            few = train[:: math.ceil(len(train) / MEASURED)]
            layers, options = plan(model, layers, batches=few, count=count, **options), {}
        convert_(model, layers if isinstance(layers, Plan) else plan(model, layers, **options))
    names = tuple(paths(model, layer)[0] for layer in converted_layers(model))
    blocks = tuple(dict.fromkeys(map(block_of, names)))
    run = _Run(model, Pair(teacher, model, blocks), train, judged, chosen, quality, tell)
    run.new = [layer for layer in converted_layers(model) if layer not in old]
    with evaluation(model), evaluation(teacher):
        found = run(names, None if folder is None else Path(folder) / "checkpoints")
    return found


class _Run:
    def __init__(
        self,
        model: nn.Module,
        pair: Pair,
        train: list[Any],
        held_out: list[Any],
        settings: AdaptSettings,
        quality: Callable[[nn.Module], float] | None,
        tell: Tell | None,
    ) -> None:
        self.model, self.pair, self.train, self.held_out = model, pair, train, held_out
        self.memory: Memory | None = None
        self.settings, self.quality = settings, quality
        self.tell = tell or (lambda step, steps, text: None)
        self.found = Adaptation((), pair.blocks)
        self.best: dict[str, Tensor] = {}
        self.new: list[Converted] = []  # the layers that are converted now

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
            few = self.train[:: math.ceil(len(self.train) / BATCHES)]
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
            loss = self._loss(_order(settings.seed, step, len(self.train)))
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

    def _loss(self, number: int) -> Tensor:
        distance = self._distance(number)
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
        loss = outputs + self.settings.hidden * float(blocks.mean())
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


def _split(batches: list[Any], held_out: Iterable[Any] | None) -> tuple[list[Any], list[Any]]:
    if held_out is not None:
        train, judged = batches, list(held_out)
    else:
        judged = batches[::10] if len(batches) > 1 else []
        train = [batch for place, batch in enumerate(batches) if place % 10]
    if not train or not judged:
        raise ValueError(
            f"there are {len(train)} batches to learn from and {len(judged)} held out; expected at "
            "least one of each (batches of two or more, or held_out)"
        )
    return train, judged


def _told(settings: AdaptSettings) -> dict[str, Any]:
    """The settings that decide what comes out."""
    return {name: each for name, each in asdict(settings).items() if name != "remember"}


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
