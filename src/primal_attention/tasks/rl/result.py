"""What a run that learned to act is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..objective import Command, Measure, RunResult

SCORE = Measure("normalised score", "", "score", 100.0)


@dataclass(frozen=True, kw_only=True)
class DecisionResult(RunResult):
    """`returns` of the episodes after the LAST epoch, their mean and deviation and the normalised
    score; no epoch is chosen by its returns. `best_decile` is the return that a tenth of the
    recorded episodes reach. `decisions_per_second` is that of the agent, for all episodes that it
    plays at once."""

    measure: ClassVar[Measure] = SCORE

    target: float
    returns: tuple[float, ...]
    returned: float
    deviation: float
    score: float
    data_mean: float
    best_decile: float
    decisions_per_second: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "returns", tuple(self.returns))  # JSON has a list

    @property
    def meaning(self) -> str:
        return "normalised score after the last epoch"

    def rows(self, command: Command) -> dict[str, str]:
        return self._facts() | {"run": str(self.run)}

    def _facts(self) -> dict[str, str]:
        return {
            "return": f"{self.returned:.1f} ± {self.deviation:.1f} over {len(self.returns)} "
            f"episodes after the last epoch, asked for {self.target:.0f}",
            "score": f"{self.score:.1f}  (0 random, 100 expert)",
            "data": f"mean return {self.data_mean:.1f}, best decile from {self.best_decile:.1f}",
            "agent": f"{self.decisions_per_second:.0f} actions a second",
            "model": f"{self.parameters:,} parameters",
            "cost": f"{self.seconds:.1f} s, peak memory {self.peak_memory_mb:.0f} MB",
        }

    @classmethod
    def told(
        cls, result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        label = f"mean of {len(result['returns'])} episodes after the last epoch"
        return label, "episodes after each epoch"

    @classmethod
    def seed_documents(cls, results: Mapping[int, Self]) -> dict[str, Any]:
        return {
            "scores": {str(seed): r.score for seed, r in results.items()},
            "returns": {str(seed): r.returned for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        return (first._facts() if len(results) == 1 else {}) | {
            "score": mean,
            "seeds": ", ".join(f"{seed}: {r.score:.1f}" for seed, r in results.items()),
            "run": str(first.run.parent),
        }
