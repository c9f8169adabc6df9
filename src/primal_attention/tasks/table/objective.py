"""The objective of tables: the labels of some rows, in the light of labelled others."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ...models.table import TableNet, loss
from ...models.table_context import to_tensors
from ...runs.errors import NotFiniteError
from ..base import DataError, Task
from ..buckets import shuffled_batches
from ..chosen import percent
from ..objective import Ended, Found, Objective, RunResult
from .files import TableFile
from .reader import TableReader, chosen
from .result import TableClassesResult, TableValuesResult
from .rows import Episode, Episodes, Rows, judgement
from .settings import TableConfig

ROWS = 8192  # that are answered at a time


class TableObjective(Objective[TableConfig, Episode]):
    """Learns from `known`; `held_out` chooses the epoch by its loss. At the end both are the
    context of a trained model, which is summed up: the table itself is not kept."""

    kept: ClassVar[tuple[str, ...]] = ("loss",)
    examples: Episodes

    def __init__(
        self,
        config: TableConfig,
        reader: TableReader,
        known: Rows,
        held_out: Rows,
        *,
        test: Callable[[], Rows | None] = lambda: None,
        fingerprints: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self.reader, self.known, self.held_out = config, reader, known, held_out
        size = config.batch_size
        if size >= len(known):
            raise DataError(
                f"batch_size is {size}; expected fewer than the {len(known)} rows for training, of "
                "which the others are the context"
            )
        wide = torch.float64 if config.precision == "64-true" else torch.float32
        self.examples = Episodes(known.to(wide), size, config.max_context)
        self.judged = judgement(known.to(wide), held_out.to(wide))
        self.test, self.fingerprints = test, dict(fingerprints or {})

    @classmethod
    def load(cls, task: Task, config: TableConfig) -> TableObjective:
        whole = task.load(config.data_dir, splits=("train",))["train"]
        file: TableFile = whole.file
        kept, held = task.hold_out(whole, config.validation_fraction, config.seed)
        rng = np.random.default_rng([config.seed, len(file.targets)])
        parts = [rng.permutation(part) for part in (kept, held)]  # files may be sorted
        targets = np.array(file.targets, dtype=object)
        train = chosen(file.columns, parts[0])
        reader = TableReader.fit(file.form, train, targets[parts[0]].tolist(), whole.classes)
        known, held_out = (
            reader.rows(chosen(file.columns, part), targets[part].tolist(), whole.name)
            for part in parts
        )

        def test() -> Rows | None:
            if "test" in task.status(config.data_dir).missing:
                return None
            found = task.load(config.data_dir, splits=("test",))["test"]
            return reader.rows(found.file.columns, found.file.targets, found.name)

        prints = {"train": whole.fingerprint()}
        return cls(config, reader, known, held_out, test=test, fingerprints=prints)

    def reading(self) -> dict[str, Any]:
        return self.reader.to_dict()

    @property
    def selection_facts(self) -> dict[str, str]:
        return {"split": "validation"}

    def model(self) -> TableNet:
        return table_net(self.config, self.reader)

    # -- a step ----------------------------------------------------------------------------------

    def batches(self, number: int) -> list[list[int]]:
        return shuffled_batches(
            len(self.examples), self.config.batch_size, self.config.seed, number
        )

    def inputs(self, batch: Episode) -> Sequence[Tensor]:
        return batch[:-1]

    def loss(self, model: nn.Module, batch: Episode) -> Tensor:
        return loss(model(*self.inputs(batch)), batch.labels)

    # -- an epoch and the end --------------------------------------------------------------------

    @torch.inference_mode()
    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        model.eval()
        episode: Episode = fabric.to_device(self.judged)
        outputs = model(*self.inputs(episode))
        found = float(loss(outputs, episode.labels))
        if not math.isfinite(found):
            raise NotFiniteError(
                f"training stopped in epoch {epoch}: the validation loss is {found}"
            )
        figure = self.figure(outputs.cpu(), self.judged.labels)
        key = self.result_class.measure.key
        text = f"validation {self.result_class.measure.name} {percent(figure)}, loss {found:.4f}"
        return Found({"split": "validation", key: figure, "loss": found}, text)

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return (-numbers["loss"],)

    def looked_at(self) -> Iterator[Episode]:
        return iter(())  # layers that attend to a summary leave no J

    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        if (best := ended.best) is None:
            raise RuntimeError("a run of at least one epoch has a best one")
        net, test = self._exact(model), self.test()
        context = self.known if test is None else self.known.joined(self.held_out)
        asked = self.held_out if test is None else test
        with torch.no_grad():
            outputs = answers(net, asked, context)
        key = self.result_class.measure.key
        return {
            "protocol": "holdout",
            "label": self.result_class.labels["validation" if test is None else "test"],  # type: ignore[attr-defined]
            "epoch": best["epoch"],
            "cut": 0,
            f"last_{key}": ended.last,
            f"validation_{key}": best[key],
            **self.figures(outputs, asked.labels),
        }

    def memory(self, model: nn.Module) -> dict[str, Tensor]:
        """What the model keeps of all rows."""
        with torch.no_grad():
            return to_tensors(self._exact(model).summarise(*self.known.joined(self.held_out).parts))

    def _exact(self, model: nn.Module) -> TableNet:
        """In float64, since sums over many rows are subtracted later."""
        bare = getattr(model, "module", model)
        net = self.model().double().eval()
        net.load_state_dict(bare.state_dict())
        return net

    def opening(self, parameters: int, steps: int) -> str:
        config, columns = self.config, self.reader.columns
        return (
            f"{config.task}, {' + '.join(config.attention)}, seed {config.seed}: "
            f"{parameters:,} parameters, {len(self.known):,} rows, {columns.numbers} numbers, "
            f"{len(columns.categories)} categories, {steps} steps"
        )

    @staticmethod
    @abstractmethod
    def figure(outputs: Tensor, labels: Tensor) -> float:
        """What runs are compared by."""

    @abstractmethod
    def figures(self, outputs: Tensor, labels: Tensor) -> dict[str, Any]:
        """All figures of a result."""


class TableClasses(TableObjective):
    """Cross-entropy, accuracy."""

    kept: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    result_class: ClassVar[type[RunResult]] = TableClassesResult
    pictures: ClassVar[tuple[str, ...]] = ("curves", "confusion")

    @staticmethod
    def figure(outputs: Tensor, labels: Tensor) -> float:
        return float((outputs.argmax(1) == labels).double().mean())

    def figures(self, outputs: Tensor, labels: Tensor) -> dict[str, Any]:
        classes = len(self.reader.classes)
        pairs = labels * classes + outputs.argmax(1)
        confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes)
        most = int(torch.bincount(self.known.labels, minlength=classes).argmax())
        return {
            "accuracy": self.figure(outputs, labels),
            "classes": self.reader.classes,
            "confusion": confusion.tolist(),
            "largest": float((labels == most).double().mean()),
        }


class TableValues(TableObjective):
    """Mean square, R^2; errors in the unit of the values."""

    kept: ClassVar[tuple[str, ...]] = ("r2", "loss")
    result_class: ClassVar[type[RunResult]] = TableValuesResult

    @staticmethod
    def figure(outputs: Tensor, labels: Tensor) -> float:
        spread = float((labels - labels.mean()).double().square().sum())
        return 1.0 - float((outputs[:, 0] - labels).double().square().sum()) / max(spread, 1e-12)

    def figures(self, outputs: Tensor, labels: Tensor) -> dict[str, Any]:
        _, deviation = self.reader.scale or (0.0, 1.0)
        off = outputs[:, 0] - labels
        return {
            "r2": self.figure(outputs, labels),
            "rmse": deviation * float(off.square().mean().sqrt()),
            "mae": deviation * float(off.abs().mean()),
            "evaluated": len(labels),
            # labels have the mean of the training rows at zero
            "alone": deviation * float(labels.square().mean().sqrt()),
        }


def table_net(config: TableConfig, reader: TableReader) -> TableNet:
    """With random weights, for tables as the reader reads them."""
    return TableNet(
        numbers=reader.columns.numbers,
        categories=reader.columns.categories,
        classes=len(reader.classes) or None,
        **config.model_options(),
    )


def answers(net: TableNet, asked: Rows, context: Rows) -> Tensor:
    """Outputs (n, classes or 1) for rows in the light of a context."""
    kept = net.summarise(*context.parts)
    parts = zip(asked.numbers.split(ROWS), asked.codes.split(ROWS), strict=True)
    return torch.cat([net.answer(*part, kept) for part in parts])
