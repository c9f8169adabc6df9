"""The objective of regression in memory: the mean square, judged by R^2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ...tasks.classification.evaluate import TOKENS, similar_lengths
from ...tasks.classification.objective import Classification
from ...tasks.classification.result import ClassificationResult
from ...tasks.examples import Batch
from ...tasks.objective import Found, Measure, RunResult


class _Judged(ClassificationResult):
    measure: ClassVar[Measure] = Measure("R2", "", "r2", 1.0)


class Values(Classification):
    """The targets are numbers of mean 0 and deviation 1; the model has one output."""

    kept: ClassVar[tuple[str, ...]] = ("r2",)
    result_class: ClassVar[type[RunResult]] = _Judged

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        predicted: Tensor = model(*self.inputs(batch))[:, 0]
        return (predicted - batch.targets.to(predicted)).square().mean()

    @torch.inference_mode()
    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        model.eval()
        squares = 0.0
        for indices in similar_lengths(self.selection.lengths.numpy(), TOKENS):
            batch = fabric.to_device(self.selection.__getitems__(indices))
            squares += float(self.loss(model, batch)) * len(indices)
        spread = float(self.selection.targets.var(correction=0)) * len(self.selection)
        r2 = 1.0 - squares / max(spread, 1e-12)
        return Found({"split": self.split, "r2": r2}, f"{self.split} R2 {r2:.3f}")

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return (numbers["r2"],)
