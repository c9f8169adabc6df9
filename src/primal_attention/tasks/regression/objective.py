"""The objective of regression: the mean square, judged by R^2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ...runs.errors import NotFiniteError
from ..classification.evaluate import TOKENS, similar_lengths
from ..classification.objective import Classification
from ..classification.result import percent
from ..examples import Batch, Examples
from ..objective import Ended, Found, RunResult
from .result import LABELS, RegressionResult


class Errors(NamedTuple):
    """Of scaled values on a set."""

    r2: float
    rmse: float
    mae: float


class Regression(Classification):
    """The targets are numbers of about mean 0 and deviation 1; the model has one output. Errors are
    told in the unit of the numbers, where the reader knows what was taken out of them."""

    kept: ClassVar[tuple[str, ...]] = ("r2",)
    result_class: ClassVar[type[RunResult]] = RegressionResult
    labels: ClassVar[Mapping[str, str]] = LABELS
    pictures: ClassVar[tuple[str, ...]] = ("curves",)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        predicted: Tensor = model(*self.inputs(batch))[:, 0]
        return (predicted - batch.targets.to(predicted)).square().mean()

    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        found = errors(fabric, model, self.selection)
        if not math.isfinite(found.rmse):
            raise NotFiniteError(
                f"training stopped in epoch {epoch}: the {self.split} error is {found.rmse}"
            )
        return Found({"split": self.split, "r2": found.r2}, f"{self.split} R2 {percent(found.r2)}")

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return (numbers["epoch"],) if self.keeps_last else (numbers["r2"],)

    def figures(self, fabric: Fabric, model: nn.Module, reported: Examples) -> dict[str, Any]:
        found = errors(fabric, model, reported)
        _, deviation = getattr(self.reader, "scale", None) or (0.0, 1.0)
        scaled = {"rmse": found.rmse * deviation, "mae": found.mae * deviation}
        return {"r2": found.r2, **scaled, "evaluated": len(reported)}

    def ends(self, ended: Ended, best: Mapping[str, Any], paper: bool) -> dict[str, Any]:
        return {"last_r2": ended.last, "validation_r2": None if paper else best["r2"]}


@torch.inference_mode()
def errors(fabric: Fabric, model: nn.Module, data: Examples) -> Errors:
    """Of a model, which is left in eval mode. Every process computes all."""
    model.eval()
    squares = absolutes = 0.0
    for indices in similar_lengths(data.lengths.numpy(), TOKENS):
        batch = fabric.to_device(data.__getitems__(indices))
        off = (model(batch.inputs, batch.padding)[:, 0] - batch.targets).double()
        squares += float(off.square().sum())
        absolutes += float(off.abs().sum())
    spread = float(data.targets.double().var(correction=0)) * len(data)
    r2 = 1.0 - squares / max(spread, 1e-12)
    return Errors(r2, math.sqrt(squares / len(data)), absolutes / len(data))
