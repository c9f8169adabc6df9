"""A finished run of any task, read from its folder: a value, what it is, and how it came about."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..runs.errors import RunError
from ..runs.files import read_json
from ..runs.metrics import read_metrics
from ..train.config import RunConfig

Curve = dict[int, float]  # by epoch or step, where it is known


class Measure(NamedTuple):
    """What a run is judged by."""

    name: str
    unit: str = ""

    @property
    def axis(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def clip(self, value: float) -> float:
        """A per cent lies between 0 and 100."""
        return min(max(value, 0.0), 100.0) if self.unit == "%" else value

    def text(self, value: float) -> str:
        return f"{value:.1f}\N{NO-BREAK SPACE}{self.unit}" if self.unit else f"{value:.1f}"


ACCURACY, SCORE = Measure("accuracy", "%"), Measure("normalised score")


@dataclass(frozen=True)
class Trained:
    """A finished run. `value` is in the unit of its measure, `label` says what it is; `settings`,
    `result` and `environment` are the documents of the folder. `values` are by epoch, on the set
    or the episodes that `judged` names; `chosen` is the epoch whose weights count. `confusion`
    (true, predicted) is None where there are no classes. `primal_layers` are J and Lambda by epoch
    and layer, as training wrote them; empty for runs that did not."""

    path: Path
    config: RunConfig
    measure: Measure
    value: float
    label: str
    protocol: str | None
    judged: str
    chosen: int
    task_loss: Curve
    ksvd_loss: Curve
    values: Curve
    ksvd_by_step: Curve
    settings: dict[str, Any]
    result: dict[str, Any]
    environment: dict[str, Any]
    classes: tuple[str, ...] = ()
    confusion: npt.NDArray[np.int64] | None = None
    primal_layers: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def title(self) -> str:
        return f"{self.config.task}, {' + '.join(self.config.attention)}"


def read_run(path: Path | str) -> Trained:
    """Read a run folder; a RunError says in one sentence what is wrong with it."""
    path = Path(path)
    try:
        if not (path / "result.json").exists():
            raise RunError(f"{path} has no result.json; expected the folder of a finished run")
        settings = read_json(path / "config.json")
        acts = str(settings.get("task", "")).startswith("rl/")
        return _agent(path, settings) if acts else _classifier(path, settings)
    except RunError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # files that were changed, or of another version
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} cannot be read as a finished run: {reason}") from error


def _classifier(path: Path, settings: dict[str, Any]) -> Trained:
    lines, result = read_metrics(path), read_json(path / "result.json")
    epochs = [line for line in lines if line["kind"] == "epoch"]
    if not epochs:
        raise RunError(f"{path / 'metrics.jsonl'} has no epoch; expected one line for each")
    classes = tuple(str(name) for name in result["classes"])
    confusion = np.array(result["confusion"], dtype=np.int64)
    if not classes or confusion.shape != (len(classes),) * 2:
        raise RunError(
            f"{path / 'result.json'} has {len(classes)} classes and a confusion matrix of "
            f"shape {confusion.shape}; expected one row and column a class"
        )
    config = RunConfig.from_dict(settings)
    return Trained(
        config=config,
        measure=ACCURACY,
        value=100 * float(result["accuracy"]),
        label=str(result["label"]),
        protocol=config.protocol,
        judged=epochs[-1]["split"],
        chosen=int(result["epoch"]),
        values=_curve(lines, "epoch", "accuracy", 100.0),
        classes=classes,
        confusion=confusion,
        **_common(path, lines, result, settings),
    )


def _agent(path: Path, settings: dict[str, Any]) -> Trained:
    """A run that learned to act: its score is that of the last epoch."""
    from ..train.decision.config import DecisionConfig

    result, lines = read_json(path / "result.json"), read_metrics(path)
    config = DecisionConfig.from_dict(settings).engine()
    scores = _curve(lines, "epoch", "score")
    return Trained(
        config=config,
        measure=SCORE,
        value=float(result["score"]),
        label=f"mean of {len(result['returns'])} episodes after the last epoch",
        protocol=None,
        judged="episodes after each epoch",
        chosen=max(scores, default=config.epochs),
        values=scores,
        **_common(path, lines, result, settings),
    )


def _common(
    path: Path, lines: list[dict[str, Any]], result: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """What runs of all kinds have, as fields of `Trained`."""
    place = path / "environment.json"
    return {
        "path": path,
        "task_loss": _curve(lines, "epoch", "task_loss"),
        "ksvd_loss": _curve(lines, "epoch", "ksvd_loss"),
        "ksvd_by_step": _curve(lines, "step", "ksvd_loss"),
        "settings": settings,
        "result": result,
        "environment": dict(read_json(place)) if place.exists() else {},
        "primal_layers": _layers(lines),
    }


def _layers(lines: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What is known of the primal layers, by epoch."""
    found = {one["epoch"]: one.get("primal_layers") for one in lines if one["kind"] == "epoch"}
    return {int(epoch): dict(layers) for epoch, layers in found.items() if layers}


def _curve(lines: list[dict[str, Any]], kind: str, quantity: str, unit: float = 1.0) -> Curve:
    """A quantity by epoch or step (`kind` is both the kind of line and its number)."""
    found = {int(one[kind]): one.get(quantity) for one in lines if one["kind"] == kind}
    known = {at: unit * float(value) for at, value in found.items() if value is not None}
    return {at: value for at, value in known.items() if math.isfinite(value)}
