"""One network trained in memory, with the engine's loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from ...models import SequenceClassifier, SeriesNet
from ...models.build import build_model
from ...tasks.classification.evaluate import TOKENS, similar_lengths
from ...tasks.classification.objective import Classification
from ...tasks.series import Integers, SeriesData, SeriesSet, stratified_split
from ..config import RunConfig
from ..events import EpochEvent
from ..launch import processes
from ..loop import Loop
from ..optim import make_optimizer
from ..order import seed_random
from .alone import alone
from .problem import Problem

JUDGED = 256  # training cases that a network is judged on at its end
Network = SequenceClassifier | SeriesNet
Tell = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, eq=False)
class Training:
    """The training of one network on some cases of a set, all of them scaled.

    `steps` at least, and `config.epochs` passes over the cases. With `patience`, a part of the
    cases is held out; training ends after so many passes without a better one, and the weights are
    those of the best. Without, or if no class has two cases, the last weights count.
    """

    config: RunConfig
    cases: SeriesSet
    problem: Problem
    rows: Integers
    steps: int
    patience: int | None

    @property
    def shape(self) -> dict[str, int]:
        return {
            "classes": self.problem.outputs,
            "channels": self.cases.channels,
            "max_length": int(self.cases.lengths.max()),
        }

    def data(self, rows: Integers) -> SeriesData:
        """Some of the cases, with their targets."""
        data = SeriesData(self.cases.subset(rows))
        data.targets = self.problem.targets[torch.from_numpy(rows)]
        data.classes = tuple(map(str, range(self.problem.outputs)))
        return data

    def with_steps(self, steps: int) -> Training:
        """Exactly so many steps."""
        config = dataclasses.replace(self.config, epochs=1)
        return dataclasses.replace(self, config=config, steps=steps)

    def steps_for(self, rows: int) -> int:
        """How many steps so many cases are trained for."""
        return max(self.steps, math.ceil(rows / self.config.batch_size) * self.config.epochs)

    def planned(self, rows: int) -> RunConfig:
        """The settings for so many cases: one epoch of the engine, or with patience one a pass."""
        batches, steps = math.ceil(rows / self.config.batch_size), self.steps_for(rows)
        warmup = min(self.config.warmup_steps, steps // 10)
        plan = dataclasses.replace(self.config, warmup_steps=warmup)
        if self.patience is None:
            return dataclasses.replace(plan, epochs=1, epoch_steps=steps)
        return dataclasses.replace(plan, epochs=math.ceil(steps / batches))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained network; `history` has an entry for each time that it was judged."""

    model: Network
    history: list[dict[str, Any]]
    steps: int


def train(training: Training, tell: Tell | None = None) -> Fitted:
    """Train with one thread. The state of torch's generators is that of before."""
    rows, patience = training.rows, training.patience
    held_out = np.array([], dtype=np.int64)
    if patience is not None:
        held_out = _held_out(training.config, training.problem.labels[rows])
    kept = np.setdiff1d(np.arange(len(rows)), held_out)
    data = training.data(rows[kept])
    if len(held_out):
        selection, split = training.data(rows[held_out]), "validation"
    else:
        selection, split = training.data(rows[kept[:JUDGED]]), "train"
        training = dataclasses.replace(training, patience=None)
    config, shape = training.planned(len(kept)), training.shape
    with processes(config) as fabric, alone(*_cuda(fabric)):
        objective = training.problem.objective(
            config, data, selection, split, lambda: build_model(config, **shape)
        )
        loop = _make_loop(fabric, config, objective)
        history = _run(loop, training.patience, tell)
        weights = loop.best_weights if len(held_out) else loop.model.state_dict()
        model = build_model(config, **shape)  # without what training has left in the other
    model.load_state_dict({name: tensor.cpu() for name, tensor in weights.items()})
    return Fitted(model.eval(), history, loop.progress.step)


@torch.inference_mode()
def outputs(model: Network, data: SeriesData) -> Tensor:
    """(cases, c) in the type of the model, on the CPU.

    In float64 a case has the same outputs in any company, up to 1e-15.
    """
    example = next(model.parameters())
    found: Tensor | None = None
    for indices in similar_lengths(data.lengths.numpy(), TOKENS):
        batch = data.__getitems__(indices)
        part = model(batch.inputs.to(example), batch.padding.to(example.device)).cpu()
        found = part.new_empty(len(data), part.shape[1]) if found is None else found
        found[indices] = part
    if found is None:
        raise ValueError("no cases; expected at least one")
    return found


def embeddings(model: Network, data: SeriesData) -> Tensor:
    """What the last linear layer of a model is given, (cases, features)."""
    last = model.get_submodule("output" if isinstance(model, SeriesNet) else "head.output")
    seen: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, given: seen.append(given[0].cpu()))
    try:
        outputs(model, data)
    finally:
        hook.remove()
    order = [i for part in similar_lengths(data.lengths.numpy(), TOKENS) for i in part]
    return torch.cat(seen)[torch.tensor(order).argsort()]


def _cuda(fabric: Fabric) -> list[torch.device]:
    """The devices whose generators are seeded, beside that of the CPU."""
    return [fabric.device] if fabric.device.type == "cuda" else []


def _held_out(config: RunConfig, labels: Integers) -> Integers:
    """The cases that choose the epoch; none if every class has a single case."""
    if np.unique(labels, return_counts=True)[1].max() < 2:
        return np.array([], dtype=np.int64)
    return stratified_split(labels, config.validation_fraction, config.seed)[1]


def _make_loop(fabric: Fabric, config: RunConfig, objective: Classification) -> Loop:
    seed_random(fabric.device, config.seed, "weights")
    model = objective.model()
    optimizer = make_optimizer(
        config.optimizer, model.parameters(), lr=config.lr, weight_decay=config.weight_decay
    )
    ready, steps = fabric.setup(model, optimizer)
    return Loop(fabric, config, ready, steps, objective)


def _run(loop: Loop, patience: int | None, tell: Tell | None) -> list[dict[str, Any]]:
    history = []
    for event in loop:
        if not isinstance(event, EpochEvent):
            if tell is not None:
                tell(event.step, event.steps)
            continue
        history.append(event.to_metrics())
        if patience is not None and event.epoch - (event.best_epoch or 0) >= patience:
            loop.stop = True
    return history
