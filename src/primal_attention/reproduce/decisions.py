"""Tables 4 and 7: decision transformers on D4RL, and what is not D4RL."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tasks import get_task
from ..train.config import DecisionConfig

ATTENTIONS: Mapping[str, str] = {
    "DT": "softmax", "Linear.": "linear", "Re.": "reformer", "Per.": "performer",
    "Cos.": "cosformer", "Flow.": "flow",
}  # fmt: skip
LAYERS = 3
PRIMAL_DT = ("softmax",) * (LAYERS - 1) + ("primal",)
QUICK: Mapping[str, Any] = {
    "width": 16, "heads": 2, "feedforward": 16, "rank": 4, "context": 5, "batch_size": 8,
    "epochs": 1, "epoch_steps": 2, "episodes": 1,
}  # fmt: skip


def decision_config(
    name: str, row: str, column: str, data_dir: str | None, *, quick: bool = False
) -> tuple[DecisionConfig | None, str]:
    """The paper's settings for a cell, or why nothing fills it."""
    task, attention, own = _recipe(name, row, column)
    status = get_task(task).status(data_dir)
    if status.missing:
        return None, f"needs D4RL's episodes: {status.how_to_get}"
    config = DecisionConfig(task=task, attention=attention, data_dir=data_dir, **own)
    try:
        config.validate()
    except ValueError as error:
        return None, str(error)
    return dataclasses.replace(config, **QUICK) if quick else config, ""


def _recipe(name: str, row: str, column: str) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Task, attentions and settings of their own."""
    if name == "table7":  # "Hopper", "Medium s=32"
        level, rank = column.split(" s=")
        return _task(level, row), PRIMAL_DT, {"rank": int(rank)}
    level, environment = row.split(" ")  # "Medium Hopper", "DT"
    attention = (ATTENTIONS[column],) * LAYERS if column in ATTENTIONS else PRIMAL_DT
    return _task(level, environment), attention, {}


def _task(level: str, environment: str) -> str:
    return f"rl/{environment.lower().replace('walker', 'walker2d')}-{level.lower()}"


def not_d4rl(data: str) -> str:
    """Why episodes from this file or folder are not those of D4RL; nothing if they are.

    D4RL's own files carry a version, d4rl/hopper_medium-v2.hdf5; those in its layout that are
    recorded here do not.
    """
    path = Path(data)
    if path.parent.name == "d4rl" and re.search(r"-v\d+\.hdf5$", path.name):
        return ""
    return f"learned from {path}, which is not D4RL's data: not comparable with the paper"
