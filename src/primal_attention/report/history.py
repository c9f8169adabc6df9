"""A run folder as the figures read it: curves by epoch, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..runs.errors import RunError
from ..runs.files import read_json
from ..runs.metrics import read_metrics
from ..train.config import RunConfig

Curve = npt.NDArray[np.float64]  # (epochs,)


@dataclass(frozen=True)
class History:
    """What happened in a finished run. Losses are means over an epoch's training cases, ksvd_loss
    is NaN where there is none; accuracies, in per cent, are on `split`, which chose the epoch."""

    run: Path
    config: RunConfig
    label: str  # what `accuracy` is
    accuracy: float
    epoch: int  # the chosen one
    split: str
    classes: tuple[str, ...]
    confusion: npt.NDArray[np.int64]  # (true, predicted)
    epochs: npt.NDArray[np.int64]
    task_loss: Curve
    ksvd_loss: Curve
    accuracies: Curve

    @property
    def title(self) -> str:
        return f"{self.config.task}, {' + '.join(self.config.attention)}"


def read_run(run: Path | str) -> History:
    """Read a run folder; a RunError says what it lacks."""
    run = Path(run)
    if not (run / "result.json").exists():
        raise RunError(f"{run} has no result.json; expected the folder of a finished run")
    result = read_json(run / "result.json")
    lines = [line for line in read_metrics(run) if line["kind"] == "epoch"]
    if not lines:
        raise RunError(f"{run / 'metrics.jsonl'} has no epoch; expected one line for each")
    return History(
        run=run,
        config=RunConfig.from_dict(read_json(run / "config.json")),
        label=result["label"],
        accuracy=result["accuracy"],
        epoch=result["epoch"],
        split=lines[-1]["split"],
        classes=tuple(result["classes"]),
        confusion=np.array(result["confusion"], dtype=np.int64),
        epochs=np.array([line["epoch"] for line in lines], dtype=np.int64),
        task_loss=_curve([line["task_loss"] for line in lines]),
        ksvd_loss=_curve([line["ksvd_loss"] for line in lines]),
        accuracies=100 * _curve([line["accuracy"] for line in lines]),
    )


def _curve(values: list[float | None]) -> Curve:
    return np.array([np.nan if value is None else value for value in values])
