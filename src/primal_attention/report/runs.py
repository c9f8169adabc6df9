"""A finished run of any task, read from its folder: a value, what it is, and how it came about."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.errors import RunError
from ..runs.files import read_json
from ..runs.metrics import read_metrics
from ..tasks import get_task
from ..tasks.classification.result import ClassificationResult
from ..tasks.objective import Measure, RunResult
from ..train.config import EngineConfig, RunConfig

Curve = dict[int, float]  # by epoch or step, where it is known


@dataclass(frozen=True)
class Trained:
    """A finished run. `value` is in the unit of its measure, `label` says what it is; `settings`,
    `result` and `environment` are the documents of the folder. `values` are by epoch, on the set
    or the episodes that `judged` names; `chosen` is the epoch whose weights count. `confusion`
    (true, predicted) is None where there are no classes. `primal_layers` are J and Lambda by epoch
    and layer, as training wrote them; empty for runs that did not."""

    path: Path
    config: EngineConfig
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
        return _read(path)
    except RunError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # files that were changed, or of another version
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} cannot be read as a finished run: {reason}") from error


def _read(path: Path) -> Trained:
    if not (path / "result.json").exists():
        raise RunError(f"{path} has no result.json; expected the folder of a finished run")
    settings, result = read_json(path / "config.json"), read_json(path / "result.json")
    lines, place = read_metrics(path), path / "environment.json"
    config, kind = _kinds(settings)
    label, judged = kind.told(result, [line for line in lines if line["kind"] == "epoch"])
    measure = kind.measure
    values = _curve(lines, "epoch", measure.key, measure.shown(1.0))
    return Trained(
        path=path,
        config=config,
        measure=measure,
        value=measure.shown(float(result[measure.key])),
        label=label,
        protocol=getattr(config, "protocol", None),
        judged=judged,
        chosen=int(result.get("epoch", max(values, default=config.epochs))),
        task_loss=_curve(lines, "epoch", "task_loss"),
        ksvd_loss=_curve(lines, "epoch", "ksvd_loss"),
        values=values,
        ksvd_by_step=_curve(lines, "step", "ksvd_loss"),
        settings=settings,
        result=result,
        environment=dict(read_json(place)) if place.exists() else {},
        **_classes(path, result),
        primal_layers=_layers(lines),
    )


def _kinds(settings: dict[str, Any]) -> tuple[EngineConfig, type[RunResult]]:
    """The settings of a run, and the kind of its result; a task that is not here is taken for one
    that learns classes."""
    try:
        task = get_task(str(settings.get("task")))
    except ValueError:
        return RunConfig.from_dict(settings), ClassificationResult
    return task.settings.from_dict(settings), task.objective.result_class


def _classes(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Classes and confusion matrix, if there are any."""
    if "classes" not in result:
        return {}
    classes = tuple(str(name) for name in result["classes"])
    confusion = np.array(result["confusion"], dtype=np.int64)
    if not classes or confusion.shape != (len(classes),) * 2:
        raise RunError(
            f"{path / 'result.json'} has {len(classes)} classes and a confusion matrix of shape "
            f"{confusion.shape}; expected one row and column a class"
        )
    return {"classes": classes, "confusion": confusion}


def _layers(lines: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What is known of the primal layers, by epoch."""
    found = {one["epoch"]: one.get("primal_layers") for one in lines if one["kind"] == "epoch"}
    return {int(epoch): dict(layers) for epoch, layers in found.items() if layers}


def _curve(lines: list[dict[str, Any]], kind: str, quantity: str, unit: float = 1.0) -> Curve:
    """A quantity by epoch or step (`kind` is both the kind of line and its number)."""
    found = {int(one[kind]): one.get(quantity) for one in lines if one["kind"] == kind}
    known = {at: unit * float(value) for at, value in found.items() if value is not None}
    return {at: value for at, value in known.items() if math.isfinite(value)}
