"""What a run that learned events is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..classification.result import ACCURACY, percent
from ..objective import Command, Measure, RunResult

MEANING = {
    "test": "next type of every test event, of the epoch with the best validation loss",
    "validation": "next type of validation events; no test set here",
}


@dataclass(frozen=True, kw_only=True)
class EventResult(RunResult):
    """`accuracy` of the next type, `loss` and `gap_loss` in nats for each event, the latter in the
    units of the data (None where the times are known); `baselines` have the same figures of tables
    of counts. `observed`, `expected`, `hits` are by type, see `evaluate.Evaluation`; `pit` are
    shares of gaps by their chance; `timeline` is one sequence event by event."""

    measure: ClassVar[Measure] = ACCURACY

    split: str
    known_time: bool
    accuracy: float
    loss: float
    gap_loss: float | None
    events: int
    epoch: int
    last_accuracy: float
    validation_accuracy: float
    validation_loss: float
    names: tuple[str, ...]
    observed: list[int]
    expected: list[float]
    hits: list[int]
    pit: list[float] | None
    baselines: dict[str, dict[str, float]]
    timeline: dict[str, list[Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))  # JSON has a list

    @property
    def meaning(self) -> str:
        return MEANING[self.split]

    @property
    def selected(self) -> float:
        return self.validation_accuracy

    @property
    def of_unseen(self) -> bool:
        return self.split == "test"

    @property
    def terms(self) -> dict[str, str]:
        return {"time of the event": "known" if self.known_time else "not known"}

    def rows(self, command: Command) -> dict[str, str]:
        return self._facts() | {
            "model": f"{self.parameters:,} parameters, epoch {self.epoch} was chosen",
            "cost": f"{self.seconds:.1f} s, peak memory {self.peak_memory_mb:.0f} MB",
            "run": str(self.run),
            "next": command(seeds="0-2"),
        }

    def _facts(self) -> dict[str, str]:
        rows = {
            "accuracy": f"{percent(self.accuracy)}  {self.meaning} ({self.events:,} events)",
            "types": f"{self.loss:.3f} nats an event",
        }
        if self.gap_loss is not None:
            alone = self.baselines["log-normal"]["gap_loss"]
            gaps = f"{self.gap_loss:.3f} nats an event, in the units of the data"
            rows["gaps"] = f"{gaps}; one log-normal for all: {alone:.3f}"
        rows["time of the event"] = self.terms["time of the event"]
        return rows | {"counting": self._counting()}

    def _counting(self) -> str:
        shown = []
        for name, known in self.baselines.items():
            if "accuracy" in known:
                nats = f", {known['loss']:.3f} nats" if "loss" in known else ""
                shown.append(f"{name} {percent(known['accuracy'])}{nats}")
        return "; ".join(shown)

    @classmethod
    def told(
        cls, result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        return MEANING[result["split"]], "validation"

    @classmethod
    def seed_documents(cls, results: Mapping[int, Self]) -> dict[str, Any]:
        return {
            "accuracies": {str(seed): r.accuracy for seed, r in results.items()},
            "losses": {str(seed): r.loss for seed, r in results.items()},
            "gap_losses": {str(seed): r.gap_loss for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        losses = [r.loss for r in results.values()]
        return {
            "accuracy": mean,
            "": first.meaning,
            "types": f"{sum(losses) / len(losses):.3f} nats an event",
            **first.terms,
            "counting": first._counting(),
            "seeds": ", ".join(
                f"{seed}: {percent(r.accuracy)}, {r.loss:.3f}" for seed, r in results.items()
            ),
            "cost": f"{sum(r.seconds for r in results.values()):.1f} s",
            "run": str(first.run.parent),
            "next": command(rival=True, seeds=",".join(map(str, results))),
        }
