"""What a run that learned numbers is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..chosen import ChosenEpochResult, labels
from ..objective import Measure

EXPLAINED = Measure("R2", "%", "r2", 1.0, least=-math.inf)
LABELS = labels("R2")


@dataclass(frozen=True, kw_only=True)
class RegressionResult(ChosenEpochResult):
    """R2 is the share of the variance that is explained: 0 for one who always says the mean of the
    evaluated values, 1 without errors. rmse and mae are in the unit of the values. last_r2 is that
    of the last epoch on the set that chose the epoch, validation_r2 that of the chosen epoch.
    """

    measure: ClassVar[Measure] = EXPLAINED
    labels: ClassVar[Mapping[str, str]] = LABELS
    by_seed: ClassVar[str] = "r2"

    r2: float
    rmse: float
    mae: float
    evaluated: int
    last_r2: float
    validation_r2: float | None

    @property
    def validated(self) -> float | None:
        return self.validation_r2

    @property
    def cases(self) -> int:
        return self.evaluated

    def errors(self) -> dict[str, str]:
        return {"error": f"root mean square {self.rmse:.4g}, mean absolute {self.mae:.4g}"}
