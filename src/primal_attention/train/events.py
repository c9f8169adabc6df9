"""What a run tells while it runs, and who may listen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tasks.objective import Found, RunResult
from .config import EngineConfig

if TYPE_CHECKING:
    from ..tasks.stores import Building
    from .layers import LayerRecord


@dataclass(frozen=True)
class RunStart:
    """A run begins or goes on; `step` of `steps` are done already. `opening` says what it is, in a
    line."""

    run: Path
    config: EngineConfig
    parameters: int
    opening: str
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
        return {k: v for k, v in asdict(self).items() if k not in ("steps", "batch", "batches")}


@dataclass(frozen=True)
class EpochEvent:
    """An epoch is done. task_loss and ksvd_loss are means over it during training; `found` is what
    the evaluation after it found, `share` what was measured as a share of the whole, both None
    after an epoch without one; `best_epoch` and `best_share` are those of the best so far, if one
    is chosen. primal_layers are J and Lambda on some cases, as `primal_layers` in layers.py
    says."""

    epoch: int
    epochs: int
    step: int
    task_loss: float
    ksvd_loss: float | None
    found: Found | None
    share: float | None
    best_epoch: int | None = None
    best_share: float | None = None
    seconds: float | None = None  # since the start of the run, without interruptions; if told
    primal_layers: dict[str, LayerRecord] = field(default_factory=dict)

    def to_metrics(self) -> dict[str, Any]:
        """What metrics.jsonl keeps."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "task_loss": self.task_loss,
            "ksvd_loss": self.ksvd_loss,
            **({} if self.found is None else self.found.metrics),
            **({} if self.seconds is None else {"seconds": self.seconds}),
            "primal_layers": self.primal_layers,
        }


class Observer:
    """Base of those who listen to a run; every method may be left out.

    A KeyboardInterrupt raised here asks the run to stop as Ctrl-C does. Any other exception ends
    the listening, not the run.
    """

    def building(self, event: Building) -> None:
        """A store of data is being built, before the run starts or before its last evaluation."""
        self.told("building", event)

    def run_started(self, start: RunStart) -> None:
        self.told("run_started", start)

    def step(self, event: StepEvent) -> None:
        self.told("step", event)

    def epoch(self, event: EpochEvent) -> None:
        self.told("epoch", event)

    def finished(self, result: RunResult) -> None:
        self.told("finished", result)

    def told(self, method: str, event: Any) -> None:
        """Whatever the other methods leave out."""


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
