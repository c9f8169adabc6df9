"""What a run that learned from the rows of a table is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..chosen import percent
from ..classification.result import ClassificationResult
from ..regression.result import RegressionResult


def labels(figure: str) -> dict[str, str]:
    return {
        "test": f"test {figure} of the epoch with the least validation loss",
        "validation": f"validation {figure}; no test set here",
    }


@dataclass(frozen=True, kw_only=True)
class TableClassesResult(ClassificationResult):
    """`largest` is the share of the class that is most frequent in training: what always saying it
    is worth on the same rows."""

    labels: ClassVar[Mapping[str, str]] = labels("accuracy")

    largest: float

    def errors(self) -> dict[str, str]:
        return {"without columns": f"{percent(self.largest)}  the most frequent class, always"}


@dataclass(frozen=True, kw_only=True)
class TableValuesResult(RegressionResult):
    """`alone` is the root mean square error of always saying the mean of the training rows."""

    labels: ClassVar[Mapping[str, str]] = labels("R2")

    alone: float

    def errors(self) -> dict[str, str]:
        return super().errors() | {
            "without columns": f"root mean square {self.alone:.4g}  the mean, always"
        }
