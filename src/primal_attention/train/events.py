"""What a run tells while it runs, and who may listen."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import RunConfig

if TYPE_CHECKING:
    from ..tasks.stores import Building
    from .layers import LayerRecord


@dataclass(frozen=True)
class RunStart:
    """A run begins or goes on; `step` of `steps` are done already."""

    run: Path
    config: RunConfig
    parameters: int
    train_cases: int
    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step of the optimiser is done. Losses are means over the batch, before the step;
    ksvd_loss is None without primal layers or with eta = 0. Everything counts from 1."""

    epoch: int
    step: int
    steps: int
    batch: int
    batches: int
    task_loss: float
    ksvd_loss: float | None
    grad_norm: float
    lr: float

    def to_metrics(self) -> dict[str, Any]:
        """What metrics.jsonl keeps; no times, so that a resumed run writes the same."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "task_loss": self.task_loss,
            "ksvd_loss": self.ksvd_loss,
            "grad_norm": self.grad_norm,
            "lr": self.lr,
        }


@dataclass(frozen=True)
class EpochEvent:
    """An epoch is done. task_loss and ksvd_loss are means over its cases during training; accuracy
    and loss are those on `split`, "validation" or "test", after it; primal_layers are J and Lambda
    on its first cases, as `primal_layers` in layers.py says."""

    epoch: int
    epochs: int
    step: int
    task_loss: float
    ksvd_loss: float | None
    split: str
    accuracy: float
    loss: float
    best_epoch: int
    best_accuracy: float
    seconds: float  # since the start of the run, without interruptions
    primal_layers: dict[str, LayerRecord] = field(default_factory=dict)

    def to_metrics(self) -> dict[str, Any]:
        """What metrics.jsonl keeps."""
        left_out = ("epochs", "best_epoch", "best_accuracy")
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in left_out}


@dataclass(frozen=True)
class RunResult:
    """What a run is worth. `label` says what `accuracy` is; `epoch` is the one that was chosen.

    last_accuracy is that of the last epoch on the set that chose the epoch (validation with
    "holdout", test with "paper"), validation_accuracy that of the chosen epoch ("holdout" only).
    `confusion[i][j]` counts the cases of class i that were taken for class j. `cut` is how many
    evaluated series were cut to the longest training series. peak_memory_mb is the most that the
    main process ever had in memory.
    """

    run: Path
    protocol: str
    label: str
    accuracy: float
    epoch: int
    last_accuracy: float
    validation_accuracy: float | None
    classes: tuple[str, ...]
    confusion: list[list[int]]
    cut: int
    seconds: float
    parameters: int
    peak_memory_mb: float
    status: str = "finished"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; the folder is left out, so that it can be moved."""
        values = {**dataclasses.asdict(self), "classes": list(self.classes)}
        del values["run"]
        return values

    @classmethod
    def from_dict(cls, run: Path, values: Mapping[str, Any]) -> RunResult:
        return cls(**{**values, "run": run, "classes": tuple(values["classes"])})


class Observer:
    """Base of those who listen to a run; every method may be left out.

    A KeyboardInterrupt raised here asks the run to stop as Ctrl-C does. Any other exception ends
    the listening, not the run.
    """

    def building(self, event: Building) -> None:
        """A store of data is being built, before the run starts or before its last evaluation."""

    def run_started(self, start: RunStart) -> None: ...

    def step(self, event: StepEvent) -> None: ...

    def epoch(self, event: EpochEvent) -> None: ...

    def finished(self, result: RunResult) -> None: ...


class Audience:
    """Passes events on to an observer, and protects the run from it."""

    def __init__(self, observer: Observer | None, interrupt: Callable[[], None]) -> None:
        self._observer, self._interrupt = observer, interrupt

    def tell(self, method: str, event: Any) -> None:
        if self._observer is None:
            return
        try:
            getattr(self._observer, method)(event)
        except KeyboardInterrupt:
            if method == "finished":  # nothing is left that could stop
                raise
            self._interrupt()
        except Exception as error:
            self._observer = None
            warnings.warn(
                f"the observer failed in {method}() and is told nothing more: {error!r}",
                stacklevel=2,
            )
