"""What a run is worth whose epoch was chosen: on a validation set, or on none."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from .objective import Command, RunResult


def labels(figure: str) -> dict[str, str]:
    """What the figure of a run can be."""
    return {
        "test": f"test {figure} of the epoch with the best validation {figure}",
        "last": f"test {figure} of the last epoch",
        "validation": f"validation {figure}; no test set here",
        "paper": "best TEST epoch: selected on the test set",
    }


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass(frozen=True, kw_only=True)
class ChosenEpochResult(RunResult):
    """`label` says what the figure is; `epoch` is the one that was chosen. `cut` is how many
    evaluated series were cut to the longest training series."""

    labels: ClassVar[Mapping[str, str]]
    by_seed: ClassVar[str]  # how summary.json calls the figures of the seeds

    protocol: str
    label: str
    epoch: int
    cut: int

    @property
    @abstractmethod
    def validated(self) -> float | None:
        """The figure of the chosen epoch on the validation set, where there was one."""

    def errors(self) -> dict[str, str]:
        """Further rows for a person."""
        return {}

    @property
    def meaning(self) -> str:
        return self.label

    @property
    def selected(self) -> float:
        return self.figure if self.validated is None else self.validated

    @property
    def of_unseen(self) -> bool:
        return self.label != self.labels["validation"]

    @property
    def terms(self) -> dict[str, str]:
        return {"protocol": self.protocol}

    def rows(self, command: Command) -> dict[str, str]:
        rows = {
            self.measure.name: f"{percent(self.figure)}  {self.label}",
            **self.errors(),
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
            cls.by_seed: {str(seed): r.figure for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        return {
            cls.measure.name: mean,
            "": first.label,
            "protocol": ", ".join(dict.fromkeys(r.protocol for r in results.values())),
            "seeds": ", ".join(f"{seed}: {percent(r.figure)}" for seed, r in results.items()),
            "cost": f"{sum(r.seconds for r in results.values()):.1f} s",
            "run": str(first.run.parent),
            "next": command(rival=True, seeds=",".join(map(str, results))),
        }
