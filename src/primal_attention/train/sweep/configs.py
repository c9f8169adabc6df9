"""The kinds of runs that a store holds: of the engine, and those that learn to act (rl/...)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...tasks import get_task
from ...tasks.rl import get_rl_task
from .. import resume, train
from ..config import RunConfig, digest
from ..decision import (
    DecisionConfig,
    DecisionObserver,
    DecisionResult,
    DecisionStart,
    resume_decision,
    train_decision,
)
from ..events import Observer, RunResult, RunStart, StepEvent

Config = RunConfig | DecisionConfig
Result = RunResult | DecisionResult


def config_of(values: Mapping[str, Any]) -> Config:
    """Settings from what `to_dict` made of them."""
    acts = str(values.get("task", "")).startswith("rl/")
    return DecisionConfig.from_dict(values) if acts else RunConfig.from_dict(values)


def data_of(config: Config) -> str:
    """Where the data of a run lies, if the task's name does not say which data it is; else ""."""
    if isinstance(config, DecisionConfig):
        found = get_rl_task(config.task).find(config.data_dir)
        return "" if found is None else str(found.resolve())
    task = get_task(config.task)
    return task.status(config.data_dir).places.get("train", "") if task.any_data else ""


def key_of(config: Config) -> str:
    """What a store knows a run by: a hash of its settings, and of the place of such data."""
    settings, data = config.fingerprint(), data_of(config)
    return digest({"settings": settings, "data": data}) if data else settings


def result_of(run: Path, values: Mapping[str, Any]) -> Result:
    """The content of a result.json of either kind."""
    return (DecisionResult if "score" in values else RunResult).from_dict(run, values)


def do(config: Config, run: Path, observer: Observer) -> Result:
    """Train in a folder, or go on in it."""
    if isinstance(config, DecisionConfig):
        listener = _Listener(observer)
        if run.exists():
            result: Any = resume_decision(run, observer=listener)
        else:
            result = train_decision(config, root=run.parent, name=run.name, observer=listener)
    elif run.exists():
        result = resume(run, observer=observer)
    else:
        result = train(config, root=run.parent, name=run.name, observer=observer)
    if not isinstance(result, RunResult | DecisionResult):
        raise TypeError(f"{run} is a folder of seeds; expected one run")
    return result


class _Listener(DecisionObserver):
    """Tells an observer of the engine about the steps of a run that learns to act."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def run_started(self, start: DecisionStart) -> None:
        config, episodes = start.config.engine(), start.data_episodes
        self._observer.run_started(
            RunStart(start.run, config, start.parameters, episodes, start.step, start.steps)
        )

    def step(self, event: StepEvent) -> None:
        self._observer.step(event)
