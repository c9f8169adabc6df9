"""What a run that learned numbers is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..classification.result import percent
from ..objective import Command, Measure, RunResult

EXPLAINED = Measure("R2", "%", "r2", 1.0, least=-math.inf)
LABELS = {
    "test": "test R2 of the epoch with the best validation R2",
    "last": "test R2 of the last epoch",
    "validation": "validation R2; no test set here",
    "paper": "best TEST epoch: selected on the test set",
}


@dataclass(frozen=True, kw_only=True)
class RegressionResult(RunResult):
    """`label` says what `r2`, `rmse` and `mae` are of; `epoch` is the one that was chosen.

    R2 is the share of the variance that is explained: 0 for one who always says the mean of the
    evaluated values, 1 without errors. rmse and mae are in the unit of the values. last_r2 is that
    of the last epoch on the set that chose the epoch, validation_r2 that of the chosen epoch.
    """

    measure: ClassVar[Measure] = EXPLAINED

    protocol: str
    label: str
    r2: float
    rmse: float
    mae: float
    evaluated: int
    epoch: int
    last_r2: float
    validation_r2: float | None
    cut: int

    @property
    def meaning(self) -> str:
        return self.label

    @property
    def selected(self) -> float:
        return self.r2 if self.validation_r2 is None else self.validation_r2

    @property
    def cases(self) -> int:
        return self.evaluated

    @property
    def of_unseen(self) -> bool:
        return self.label != LABELS["validation"]

    @property
    def terms(self) -> dict[str, str]:
        return {"protocol": self.protocol}

    def rows(self, command: Command) -> dict[str, str]:
        rows = {
            "R2": f"{percent(self.r2)}  {self.label}",
            "error": f"root mean square {self.rmse:.4g}, mean absolute {self.mae:.4g}",
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
            "r2": {str(seed): r.r2 for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        return {
            "R2": mean,
            "": first.label,
            "protocol": ", ".join(dict.fromkeys(r.protocol for r in results.values())),
            "seeds": ", ".join(f"{seed}: {percent(r.r2)}" for seed, r in results.items()),
            "cost": f"{sum(r.seconds for r in results.values()):.1f} s",
            "run": str(first.run.parent),
            "next": command(rival=True, seeds=",".join(map(str, results))),
        }
