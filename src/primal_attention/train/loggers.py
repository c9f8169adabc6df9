"""Loggers by name: what a run measures, also in TensorBoard or in Weights & Biases.

    primal train uea/JapaneseVowels --log tensorboard
    tensorboard --logdir runs

They hear what metrics.jsonl is told. TensorBoard's files lie in RUN/tensorboard. Weights & Biases
takes its settings (project, offline mode, key) from its own variables, and keeps its files in RUN.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ..names import check_choice
from ..runs.extras import needs_extra
from ..tasks.objective import RunResult
from .events import EpochEvent, Observer, RunStart, StepEvent


class Several(Observer):
    """Tells several observers; one that fails is told nothing more, the others go on."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    def told(self, method: str, event: Any) -> None:
        for one in list(self._observers):
            try:
                getattr(one, method)(event)
            except Exception as error:
                self._observers.remove(one)
                warnings.warn(
                    f"{type(one).__name__} failed in {method}() and is told nothing more: "
                    f"{error!r}",
                    stacklevel=2,
                )


class _Logger(Observer, ABC):
    """Numbers by name and step; a subclass writes them."""

    def step(self, event: StepEvent) -> None:
        self.write(event.step, "step", event.to_metrics())

    def epoch(self, event: EpochEvent) -> None:
        self.write(event.step, "epoch", event.to_metrics())

    def write(self, step: int, kind: str, values: dict[str, Any]) -> None:
        found = {f"{kind}/{name}": value for name, value in values.items() if name != "step"}
        self.numbers(step, {name: value for name, value in found.items() if _is_number(value)})

    @abstractmethod
    def numbers(self, step: int, values: dict[str, float]) -> None:
        """Write values of a step."""


class TensorBoardLogger(_Logger):
    """Event files in RUN/tensorboard; steps that a resumed run repeats replace the old ones."""

    def __init__(self) -> None:
        with needs_extra("tensorboard", "the logger tensorboard needs"):
            from torch.utils.tensorboard import SummaryWriter
        self._kind = SummaryWriter
        self._writer: Any = None

    def run_started(self, start: RunStart) -> None:
        self._close()
        folder = str(start.run / "tensorboard")
        self._writer = self._kind(folder, purge_step=start.step + 1 if start.step else None)
        self._writer.add_text("run", start.opening)

    def numbers(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finished(self, result: RunResult) -> None:
        self._writer.add_text("result", f"{result.figure:.4g}: {result.meaning}")
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbLogger(_Logger):
    """A run of Weights & Biases with the name of the folder; a resumed one goes on in it."""

    def __init__(self) -> None:
        with needs_extra("wandb", "the logger wandb needs"):
            import wandb
        self._wandb: Any = wandb
        self._run: Any = None

    def run_started(self, start: RunStart) -> None:
        if self._run is not None:
            self._run.finish()
        self._run = self._wandb.init(
            dir=str(start.run),
            name=start.run.name,
            id=hashlib.sha256(str(start.run.resolve()).encode()).hexdigest()[:16],
            resume="allow",
            config=start.config.to_dict(),
        )

    def numbers(self, step: int, values: dict[str, float]) -> None:
        if self._run is not None:
            self._run.log(values, step=step)

    def finished(self, result: RunResult) -> None:
        if self._run is not None:
            self._run.summary[result.measure.key] = result.figure
            self._run.summary["meaning"] = result.meaning
            self._run.finish()
            self._run = None


LOGGERS: dict[str, type[Observer]] = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}


def make_loggers(names: str) -> list[Observer]:
    """Loggers by their names, between commas."""
    found = []
    for name in filter(None, (word.strip() for word in names.split(","))):
        check_choice("a logger", name, LOGGERS)
        found.append(LOGGERS[name]())
    return found


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
