"""What a run that learned classes is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..objective import Command, Measure, RunResult

ACCURACY = Measure("accuracy", "%", "accuracy", 1.0)
LABELS = {
    "test": "test accuracy of the epoch with the best validation accuracy",
    "last": "test accuracy of the last epoch",
    "validation": "validation accuracy; no test set here",
    "paper": "best TEST epoch: selected on the test set",
}


@dataclass(frozen=True, kw_only=True)
class ClassificationResult(RunResult):
    """`label` says what `accuracy` is; `epoch` is the one that was chosen.

    last_accuracy is that of the last epoch on the set that chose the epoch (validation with
    "holdout", test with "paper"), validation_accuracy that of the chosen epoch ("holdout" only).
    `confusion[i][j]` counts the cases of class i that were taken for class j. `cut` is how many
    evaluated series were cut to the longest training series.
    """

    measure: ClassVar[Measure] = ACCURACY

    protocol: str
    label: str
    accuracy: float
    epoch: int
    last_accuracy: float
    validation_accuracy: float | None
    classes: tuple[str, ...]
    confusion: list[list[int]]
    cut: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))  # JSON has a list

    @property
    def meaning(self) -> str:
        return self.label

    @property
    def selected(self) -> float:
        return self.accuracy if self.validation_accuracy is None else self.validation_accuracy

    @property
    def cases(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def of_unseen(self) -> bool:
        return self.label != LABELS["validation"]

    @property
    def terms(self) -> dict[str, str]:
        return {"protocol": self.protocol}

    def rows(self, command: Command) -> dict[str, str]:
        rows = {
            "accuracy": f"{percent(self.accuracy)}  {self.label}",
            "protocol": f"{self.protocol}, epoch {self.epoch} was chosen",
            "model": f"{self.parameters:,} parameters",
            "cost": f"{self.seconds:.1f} s, peak memory {self.peak_memory_mb:.0f} MB",
        }
        if self.cut:
            rows["note"] = f"test cases cut to the model's length: {self.cut}"
        return rows | {"run": str(self.run), "next": command(seeds="0-4")}

    @classmethod
    def told(
        cls, result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        if not epochs:
            raise ValueError("metrics.jsonl has no epoch; expected one line for each")
        return result["label"], epochs[-1]["split"]

    @classmethod
    def seed_documents(cls, results: Mapping[int, Self]) -> dict[str, Any]:
        return {
            "label": next(iter(results.values())).label,
            "accuracies": {str(seed): r.accuracy for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        return {
            "accuracy": mean,
            "": first.label,
            "protocol": ", ".join(dict.fromkeys(r.protocol for r in results.values())),
            "seeds": ", ".join(f"{seed}: {percent(r.accuracy)}" for seed, r in results.items()),
            "cost": f"{sum(r.seconds for r in results.values()):.1f} s",
            "run": str(first.run.parent),
            "next": command(rival=True, seeds=",".join(map(str, results))),
        }


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
