"""The objective of classification: cross-entropy, and the accuracy on a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from ...runs.errors import NotFiniteError
from ..base import Task
from ..buckets import bucket_batches, shuffled_batches
from ..examples import Batch, Examples
from ..objective import Best, Found, Objective, RunResult
from .data import RunData, load_data
from .evaluate import TOKENS, evaluate, similar_lengths
from .result import LABELS, ClassificationResult, percent
from .settings import RunConfig

LOOKED_AT = 8  # cases, after an epoch


class Classification(Objective[RunConfig, Batch]):
    """Learns from `examples`; `selection`, the part named `split`, chooses the epoch. `data` is
    where they came from: it alone can read the test set."""

    kept: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    result_class: ClassVar[type[RunResult]] = ClassificationResult
    pictures: ClassVar[tuple[str, ...]] = ("curves", "confusion")

    def __init__(
        self,
        config: RunConfig,
        examples: Examples,
        selection: Examples,
        split: str,
        build: Callable[[], nn.Module],
        data: RunData | None = None,
    ) -> None:
        self.config, self.examples = config, examples
        self.selection, self.split, self.build, self.data = selection, split, build, data

    @classmethod
    def load(cls, task: Task, config: RunConfig) -> Classification:
        data = load_data(config)

        def build() -> nn.Module:
            return task.model(config, data.reader.shape)

        return cls(config, data.train, data.selection, data.split, build, data)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {} if self.data is None else self.data.fingerprints

    @property
    def selection_facts(self) -> dict[str, str]:
        return {"split": self.split}

    def model(self) -> nn.Module:
        return self.build()

    def batches(self, number: int) -> list[list[int]]:
        size, seed = self.config.batch_size, self.config.seed
        if self.config.batching == "bucket":
            return bucket_batches(self.examples.lengths, size, seed, number)
        return shuffled_batches(len(self.examples), size, seed, number)

    def inputs(self, batch: Batch) -> Sequence[Tensor]:
        return batch.inputs, batch.padding

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = model(*self.inputs(batch))
        return F.cross_entropy(logits, batch.targets, label_smoothing=self.config.label_smoothing)

    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        found = evaluate(fabric, model, self.selection)
        if not math.isfinite(found.loss):
            raise NotFiniteError(
                f"training stopped in epoch {epoch}: the {self.split} loss is {found.loss}"
            )
        return Found(
            {"split": self.split, "accuracy": found.accuracy, "loss": found.loss},
            f"{self.split} {percent(found.accuracy)}",
        )

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return numbers["accuracy"], -numbers["loss"]

    def looked_at(self) -> Iterator[Batch]:
        """The first cases of the selection."""
        for indices in similar_lengths(self.selection.lengths[:LOOKED_AT].numpy(), TOKENS):
            yield self.selection.__getitems__(indices)

    def result(
        self,
        fabric: Fabric,
        model: nn.Module,
        best: Best | None,
        last: float,
        found: Found | None,
    ) -> dict[str, Any]:
        """Of the best weights: the only time that "holdout" reads the test set."""
        if best is None or self.data is None:
            raise RuntimeError("a run in a folder has data, and after an epoch a best one")
        test = self.data.read_test()
        reported = self.selection if test is None else test
        final = evaluate(fabric, model, reported)
        paper = self.config.protocol == "paper"
        return {
            "protocol": self.config.protocol,
            "label": LABELS["paper" if paper else "validation" if test is None else "test"],
            "accuracy": final.accuracy,
            "epoch": best.epoch,
            "last_accuracy": last,
            "validation_accuracy": None if paper else best.numbers["accuracy"],
            "classes": reported.classes,
            "confusion": final.confusion.tolist(),
            "cut": reported.cut,
        }

    def opening(self, parameters: int, steps: int) -> str:
        config = self.config
        return (
            f"{config.task}, {' + '.join(config.attention)}, seed {config.seed}, {config.protocol} "
            f"protocol: {parameters:,} parameters, {len(self.examples)} series, {steps} steps"
        )
