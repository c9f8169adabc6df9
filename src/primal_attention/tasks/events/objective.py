"""The objective of events: the type of the next one and the time until it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from lightning_fabric import Fabric
from torch import Tensor, nn

from ...models.cooccurrence import cooccurrence_
from ...models.events import EventModel
from ...runs.errors import NotFiniteError
from ..base import Task
from ..buckets import bucket_batches
from ..classification.result import percent
from ..objective import Ended, Found, Objective, RunResult
from .baselines import baselines
from .evaluate import evaluate, timeline, type_losses
from .result import EventResult
from .sets import EventBatch, EventData, EventSet
from .settings import EventConfig

LOOKED_AT = 4  # sequences, after an epoch


class Events(Objective[EventConfig, EventBatch]):
    """Learns from `train`; `selection`, held-out sequences of the training set, chooses the epoch
    by its loss. The test set is read once, at the end."""

    kept: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "total")
    result_class: ClassVar[type[RunResult]] = EventResult
    pictures: ClassVar[tuple[str, ...]] = ("curves",)

    examples: EventData

    def __init__(
        self,
        config: EventConfig,
        train: EventSet,
        selection: EventSet,
        *,
        test: Callable[[], EventSet | None] = lambda: None,
        fingerprints: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self.train, self.test = config, train, test
        self.examples, self.selection = EventData(train), EventData(selection)
        self.fingerprints = dict(fingerprints or {})

    @classmethod
    def load(cls, task: Task, config: EventConfig) -> Events:
        parts = task.load(config.data_dir, splits=("train",))
        whole: EventSet = parts["train"]
        kept, held_out = split(whole, config.validation_fraction, config.seed)

        def test() -> EventSet | None:
            if "test" in task.status(config.data_dir).missing:
                return None
            found: EventSet = task.load(config.data_dir, splits=("test",))["test"]
            return found

        prints = {"train": whole.fingerprint()}
        return cls(config, kept, held_out, test=test, fingerprints=prints)

    def reading(self) -> dict[str, Any]:
        """How new tables are read."""
        return {"reads": "events", "names": list(self.train.names)}

    @property
    def selection_facts(self) -> dict[str, str]:
        return {"split": "validation"}

    def model(self) -> EventModel:
        model = EventModel(len(self.train.names), **self.config.model_options())
        model.set_scales_(self.train.time_scales(), self.train.gap_scales())
        if self.config.start == "cooccurrence":
            cooccurrence_(model.embed, self.train.types)
        return model

    def batches(self, number: int) -> list[list[int]]:
        size, seed = self.config.batch_size, self.config.seed
        return bucket_batches(self.examples.lengths, size, seed, number)

    def inputs(self, batch: EventBatch) -> Sequence[Tensor]:
        return batch.types, batch.times, batch.next_times, batch.padding

    def loss(self, model: nn.Module, batch: EventBatch) -> Tensor:
        """The mean over the events of the negative log-likelihood of type and gap."""
        made = model(*self.inputs(batch))
        valid = ~batch.padding
        loss = type_losses(made.types[valid], batch.next_types[valid]).mean()
        if made.gap is not None and self.config.gap_weight:
            bare: Any = getattr(model, "module", model)
            density = made.gap.log_prob(bare.gap_of(batch.gaps))
            loss = loss - self.config.gap_weight * density[valid].mean()
        return loss

    def terms(self, indices: Sequence[int]) -> int:
        return int(self.examples.lengths[list(indices)].sum())

    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        found = evaluate(fabric, model, self.selection)
        if not math.isfinite(found.total):
            raise NotFiniteError(
                f"training stopped in epoch {epoch}: the validation loss is {found.total}"
            )
        metrics = {
            "split": "validation", "accuracy": found.accuracy, "loss": found.loss,
            "gap_loss": found.gap_loss, "total": found.total,
        }  # fmt: skip
        gap = "" if found.gap_loss is None else f", gaps {found.gap_loss:.3f}"
        text = f"validation {percent(found.accuracy)}, {found.loss:.3f} nats{gap}"
        return Found(metrics, text)

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return (-numbers["loss"] - min(self.config.gap_weight, 1.0) * self._gap_part(numbers),)

    @staticmethod
    def _gap_part(numbers: Mapping[str, float]) -> float:
        return numbers["total"] - numbers["loss"]

    def looked_at(self) -> Iterator[EventBatch]:
        yield self.selection.__getitems__(list(range(min(LOOKED_AT, len(self.selection)))))

    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        if (best := ended.best) is None:
            raise RuntimeError("a run of at least one epoch has a best one")
        test = self.test()
        data = self.selection if test is None else EventData(test)
        found = evaluate(fabric, model, data)
        return {
            "split": "validation" if test is None else "test",
            "known_time": self.config.known_time,
            "accuracy": found.accuracy,
            "loss": found.loss,
            "gap_loss": found.gap_loss,
            "events": data.data.events,
            "epoch": best["epoch"],
            "last_accuracy": ended.last,
            "validation_accuracy": best["accuracy"],
            "validation_loss": best["loss"],
            "names": list(data.data.names),
            "observed": found.observed.tolist(),
            "expected": [round(float(e), 2) for e in found.expected],
            "hits": found.hits.tolist(),
            "pit": found.pit,
            "baselines": baselines(self.train, data.data),
            "timeline": timeline(fabric, model, data),
        }

    def opening(self, parameters: int, steps: int) -> str:
        config, train = self.config, self.train
        known = ", time of the event known" if config.known_time else ""
        return (
            f"{config.task}, {' + '.join(config.attention)}, seed {config.seed}{known}: "
            f"{parameters:,} parameters, {len(train)} sequences, {train.events:,} events to "
            f"predict, {len(train.names)} types, {steps} steps"
        )


def split(data: EventSet, fraction: float, seed: int) -> tuple[EventSet, EventSet]:
    """The sequences to learn from, and those that choose the epoch; at least one of each."""
    if len(data) < 2:
        raise ValueError(
            f"{data.name} has one sequence; expected at least two, to learn from and to choose by"
        )
    order = np.random.default_rng([seed, len(data)]).permutation(len(data))
    held_out = min(max(1, round(fraction * len(data))), len(data) - 1)
    return data.subset(np.sort(order[held_out:])), data.subset(np.sort(order[:held_out]))
