"""The objective of classification: cross-entropy, and the accuracy on a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from ...attention import kl_loss
from ...runs.errors import NotFiniteError, RunError
from ..base import Task
from ..buckets import bucket_batches, shuffled_batches
from ..examples import Batch, Examples, Part, Reader
from ..objective import Ended, Found, Objective, RunResult
from .evaluate import TOKENS, evaluate, similar_lengths
from .result import LABELS, ClassificationResult, percent
from .settings import RunConfig

LOOKED_AT = 8  # cases, after an epoch


class Classification(Objective[RunConfig, Batch]):
    """Learns from `examples`; `selection`, the part named `split`, chooses the epoch. `build` makes
    the model, and `test` the examples of the test set, None where there is none."""

    kept: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    result_class: ClassVar[type[RunResult]] = ClassificationResult
    labels: ClassVar[Mapping[str, str]] = LABELS  # what the figures of a result are
    pictures: ClassVar[tuple[str, ...]] = ("curves", "confusion")

    def __init__(
        self,
        config: RunConfig,
        examples: Examples,
        selection: Examples,
        split: str,
        build: Callable[[], nn.Module],
        *,
        test: Callable[[], Examples | None] = lambda: None,
        fingerprints: Mapping[str, str] | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.config, self.examples, self.selection, self.split = config, examples, selection, split
        self.model, self.test = build, test
        self.fingerprints = dict(fingerprints or {})
        self.reader = reader

    @classmethod
    def load(cls, task: Task, config: RunConfig) -> Classification:
        """With protocol "holdout" the test set is not touched."""
        split = "test" if config.protocol == "paper" else "validation"
        if split in task.splits:
            parts = _read(task, config, "train", split)
            train, selection = parts["train"], parts[split]
        else:
            parts = _read(task, config, "train")
            whole = parts["train"]
            kept, held_out = task.hold_out(whole, config.validation_fraction, config.seed)
            train, selection = whole.subset(kept), whole.subset(held_out)
        reader = task.reader(train, config)  # what it knows comes from the training part alone
        selected = reader(selection)

        def test() -> Examples | None:
            if split == "test":
                return selected
            if "test" in task.status(config.data_dir).missing:
                return None
            # with the training set, so that the task can compare the two
            return reader(_read(task, config, "train", "test")["test"])

        return cls(
            config,
            reader(train, training=True),
            selected,
            split,
            lambda: task.model(config, reader.shape),
            test=test,
            fingerprints={name: part.fingerprint() for name, part in parts.items()},
            reader=reader,
        )

    def reading(self) -> dict[str, Any] | None:
        return None if self.reader is None else self.reader.to_dict()

    @property
    def selection_facts(self) -> dict[str, str]:
        return {"split": self.split}

    def batches(self, number: int) -> list[list[int]]:
        size, seed = self.config.batch_size, self.config.seed
        if self.config.batching == "bucket":
            return bucket_batches(self.examples.lengths, size, seed, number)
        return shuffled_batches(len(self.examples), size, seed, number)

    def inputs(self, batch: Batch) -> Sequence[Tensor]:
        return batch.inputs, batch.padding

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = model(*self.inputs(batch))
        loss = F.cross_entropy(logits, batch.targets, label_smoothing=self.config.label_smoothing)
        if self.config.uncertainty == "readout":
            loss = loss + kl_loss(model).to(loss) / len(self.examples)
        return loss

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

    def looks_after(self, epoch: int) -> bool:
        if self.config.selection_epochs == "every":
            return True
        # The published code looks at epoch 0 too, before any step, which is never the best.
        return epoch == 1 or epoch % 2 == 0 or epoch == self.config.epochs

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        if self.keeps_last:
            return (numbers["epoch"],)
        return numbers["accuracy"], -numbers["loss"]

    @property
    def keeps_last(self) -> bool:
        """Whether the last epoch counts, not the best; the paper's protocol is the best."""
        return self.config.keep == "last" and self.config.protocol != "paper"

    def looked_at(self) -> Iterator[Batch]:
        """The first cases of the selection."""
        for indices in similar_lengths(self.selection.lengths[:LOOKED_AT].numpy(), TOKENS):
            yield self.selection.__getitems__(indices)

    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        """Of the best weights: the only time that "holdout" reads the test set."""
        if (best := ended.best) is None:
            raise RuntimeError("a run of at least one epoch has a best one")
        test = self.test()
        reported = self.selection if test is None else test
        paper = self.config.protocol == "paper"
        chosen = "paper" if paper else "last" if self.keeps_last else "test"
        return {
            "protocol": self.config.protocol,
            "label": self.labels[chosen if paper or test is not None else "validation"],
            "epoch": best["epoch"],
            "cut": reported.cut,
            **self.figures(fabric, model, reported),
            **self.ends(ended, best, paper),
        }

    def figures(self, fabric: Fabric, model: nn.Module, reported: Examples) -> dict[str, Any]:
        """What a model is worth on the set that is reported."""
        found = evaluate(fabric, model, reported)
        return {
            "accuracy": found.accuracy,
            "classes": reported.classes,
            "confusion": found.confusion.tolist(),
        }

    def ends(self, ended: Ended, best: Mapping[str, Any], paper: bool) -> dict[str, Any]:
        """What the last and the chosen epoch were worth on the set that chose."""
        return {
            "last_accuracy": ended.last,
            "validation_accuracy": None if paper else best["accuracy"],
        }

    def opening(self, parameters: int, steps: int) -> str:
        config = self.config
        return (
            f"{config.task}, {' + '.join(config.attention)}, seed {config.seed}, {config.protocol} "
            f"protocol: {parameters:,} parameters, {len(self.examples)} series, {steps} steps"
        )


def _read(task: Task, config: RunConfig, *splits: str) -> dict[str, Part]:
    parts: dict[str, Part] = dict(task.load(config.data_dir, splits=splits))
    for part in parts.values():
        if part.labels.min() < 0:
            raise RunError(
                f"{part.name} has {int((part.labels < 0).sum())} cases without a label; expected a "
                "label for every case"
            )
    return parts
