"""What a run tells while it learns to act, and what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..events import StepEvent
from .config import DecisionConfig

if TYPE_CHECKING:
    from ..layers import LayerRecord


@dataclass(frozen=True)
class DecisionStart:
    """A run begins or goes on; `step` of `steps` are done already."""

    run: Path
    config: DecisionConfig
    parameters: int
    data: str  # where the episodes lie
    data_episodes: int
    data_steps: int
    step: int
    steps: int


@dataclass(frozen=True)
class DecisionEpoch:
    """An epoch is done. The losses are means over its steps, the rest is what the agent collected
    in the environment after it; primal_layers are J and Lambda on some pieces of the data."""

    epoch: int
    epochs: int
    step: int
    task_loss: float
    ksvd_loss: float | None
    returned: float  # mean return
    deviation: float
    score: float
    primal_layers: dict[str, LayerRecord] = field(default_factory=dict)

    def to_metrics(self) -> dict[str, Any]:
        """What metrics.jsonl keeps."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "epochs"}


@dataclass(frozen=True)
class DecisionResult:
    """What a run is worth: `returns` of the episodes after the LAST epoch, their mean and deviation
    and the normalised score; no epoch is chosen by its returns. `best_decile` is the return that a
    tenth of the recorded episodes reach. `decisions_per_second` is that of the agent, for all
    episodes that it plays at once."""

    run: Path
    target: float
    returns: tuple[float, ...]
    returned: float
    deviation: float
    score: float
    data_mean: float
    best_decile: float
    decisions_per_second: float
    seconds: float
    parameters: int
    peak_memory_mb: float
    status: str = "finished"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; the folder is left out, so that it can be moved."""
        values = {**dataclasses.asdict(self), "returns": list(self.returns)}
        del values["run"]
        return values

    @classmethod
    def from_dict(cls, run: Path, values: Mapping[str, Any]) -> DecisionResult:
        return cls(**{**values, "run": run, "returns": tuple(values["returns"])})


class DecisionObserver:
    """Base of those who listen to a run; every method may be left out."""

    def run_started(self, start: DecisionStart) -> None: ...

    def step(self, event: StepEvent) -> None: ...

    def epoch(self, event: DecisionEpoch) -> None: ...

    def finished(self, result: DecisionResult) -> None: ...
