"""The settings of runs: those that every run has, and the kinds that tasks bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tasks.classification.settings import RunConfig
from ..tasks.rl.settings import DecisionConfig
from ..tasks.settings import PLACE_FIELDS, EngineConfig, digest

__all__ = [
    "CHOICES",
    "KINDS",
    "PLACE_FIELDS",
    "DecisionConfig",
    "EngineConfig",
    "RunConfig",
    "config_of",
    "digest",
]

KINDS: tuple[type[EngineConfig], ...] = (RunConfig, DecisionConfig)  # that `--help` shows
CHOICES = RunConfig.CHOICES


def config_of(values: Mapping[str, Any]) -> EngineConfig:
    """Settings from what `to_dict` made of them; the task says of which kind they are."""
    from ..tasks import get_task

    if not isinstance(task := values.get("task"), str):
        return RunConfig.from_dict(values)  # says what is wrong
    return get_task(task).settings.from_dict(values)
