"""One training in memory, with the engine's loop: the model, its statistics, its history."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from ...models import SequenceClassifier, SeriesNet
from ...models.build import build_model
from ...tasks.classification.evaluate import TOKENS, similar_lengths
from ...tasks.classification.objective import Classification
from ...tasks.series import Normaliser, SeriesData, SeriesSet, stratified_split
from ..config import RunConfig
from ..events import EpochEvent
from ..launch import processes
from ..loop import Loop
from ..optim import make_optimizer
from ..order import seed_random

_one_at_a_time = threading.Lock()  # torch's generators, which the loop seeds, belong to all threads


@dataclass(frozen=True)
class Fitted:
    """`history` has one entry for each epoch."""

    model: SequenceClassifier | SeriesNet
    normaliser: Normaliser | None
    history: list[dict[str, Any]]


def fit_model(
    config: RunConfig, cases: SeriesSet, *, patience: int | None, verbose: bool
) -> Fitted:
    """Train on labelled cases. The state of torch's generators is that of before.

    With `patience`, a part of every class is held out; training ends after so many epochs without
    a better one, and the weights are those of the best. Without, or if no class has two cases, all
    cases are trained on for all epochs, and the weights are the last.
    """
    held_out = _held_out(config, cases) if patience is not None else np.array([], dtype=np.int64)
    kept = np.setdiff1d(np.arange(len(cases)), held_out)
    train = cases.subset(kept)
    normaliser = Normaliser.fit(train) if config.normalise == "channel" else None
    longest = int(cases.lengths.max())
    data = prepare(train, normaliser, longest)
    if len(held_out):
        selection, split = prepare(cases.subset(held_out), normaliser, longest), "validation"
    else:
        selection, split, patience = data, "train", None
    shape = {"classes": len(cases.classes), "channels": cases.channels, "max_length": longest}
    with _one_at_a_time, processes(config) as fabric:
        devices = [fabric.device] if fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            objective = Classification(
                config, data, selection, split, lambda: build_model(config, **shape)
            )
            loop = _make_loop(fabric, config, objective)
            history = _run(loop, patience, verbose)
            weights = loop.best_weights if split == "validation" else loop.model.state_dict()
            model = build_model(config, **shape)  # without what training has left in the other
    model.load_state_dict({name: tensor.cpu() for name, tensor in weights.items()})
    return Fitted(model.eval(), normaliser, history)


def prepare(cases: SeriesSet, normaliser: Normaliser | None, max_length: int) -> SeriesData:
    normalised = cases if normaliser is None else normaliser.apply(cases)
    return SeriesData(normalised, max_length=max_length)


@torch.inference_mode()
def probabilities(model: SequenceClassifier | SeriesNet, data: SeriesData) -> torch.Tensor:
    """(cases, classes) in the type of the model, on the CPU.

    In float64 a case has the same probabilities in any company, up to 1e-15.
    """
    example = next(model.parameters())
    found = torch.empty(len(data), len(data.classes), dtype=example.dtype)
    for indices in similar_lengths(data.lengths.numpy(), TOKENS):
        batch = data.__getitems__(indices)
        logits = model(batch.inputs.to(example), batch.padding.to(example.device))
        found[indices] = logits.softmax(-1).cpu()
    return found


def _held_out(config: RunConfig, cases: SeriesSet) -> Any:
    """The cases that choose the epoch; none if every class has a single case."""
    if np.bincount(cases.labels).max() < 2:
        return np.array([], dtype=np.int64)
    return stratified_split(cases.labels, config.validation_fraction, config.seed)[1]


def _make_loop(fabric: Fabric, config: RunConfig, objective: Classification) -> Loop:
    seed_random(fabric.device, config.seed, "weights")
    model = objective.model()
    optimizer = make_optimizer(config.optimizer, model.parameters(), lr=config.lr)
    ready, steps = fabric.setup(model, optimizer)
    return Loop(fabric, config, ready, steps, objective)


def _run(loop: Loop, patience: int | None, verbose: bool) -> list[dict[str, Any]]:
    history = []
    for event in loop:
        if not isinstance(event, EpochEvent):
            continue
        history.append(event.to_metrics())
        if verbose:
            print(
                f"epoch {event.epoch}/{event.epochs}  loss {event.task_loss:.4f}  "
                f"{event.found.metrics['split']} accuracy {event.share:.4f}"
            )
        if patience is not None and event.epoch - (event.best_epoch or 0) >= patience:
            loop.stop = True
    return history
