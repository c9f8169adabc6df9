"""What a store knows a run by, and how it is done."""

from __future__ import annotations

from pathlib import Path

from ...tasks import get_task
from ...tasks.objective import RunResult
from .. import resume, train
from ..config import EngineConfig, digest
from ..events import Observer


def data_of(config: EngineConfig) -> str:
    """Where the data of a run lies, if the task's name does not say which data it is; else ""."""
    return get_task(config.task).place(config.data_dir)


def key_of(config: EngineConfig) -> str:
    """What a store knows a run by: a hash of its settings, and of the place of such data."""
    settings, data = config.fingerprint(), data_of(config)
    return digest({"settings": settings, "data": data}) if data else settings


def do(config: EngineConfig, run: Path, observer: Observer) -> RunResult:
    """Train in a folder, or go on in it."""
    if run.exists():
        result = resume(run, observer=observer)
    else:
        result = train(config, root=run.parent, name=run.name, observer=observer)
    if not isinstance(result, RunResult):
        raise TypeError(f"{run} is a folder of seeds; expected one run")
    return result
