"""What a run that learned classes is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..chosen import ChosenEpochResult, labels
from ..chosen import percent as percent
from ..objective import Measure

ACCURACY = Measure("accuracy", "%", "accuracy", 1.0)
LABELS = labels("accuracy")


@dataclass(frozen=True, kw_only=True)
class ClassificationResult(ChosenEpochResult):
    """last_accuracy is that of the last epoch on the set that chose the epoch (validation with
    "holdout", test with "paper"), validation_accuracy that of the chosen epoch ("holdout" only).
    `confusion[i][j]` counts the cases of class i that were taken for class j.
    """

    measure: ClassVar[Measure] = ACCURACY
    labels: ClassVar[Mapping[str, str]] = LABELS
    by_seed: ClassVar[str] = "accuracies"

    accuracy: float
    last_accuracy: float
    validation_accuracy: float | None
    classes: tuple[str, ...]
    confusion: list[list[int]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))  # JSON has a list

    @property
    def validated(self) -> float | None:
        return self.validation_accuracy

    @property
    def cases(self) -> int:
        return sum(map(sum, self.confusion))
