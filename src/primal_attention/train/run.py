"""Runs: begin one, or continue it from its folder. Every process of a run calls these alike."""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import NotFiniteError, RunError
from ..runs.files import read_json
from ..runs.folder import create_folder, folder_stem, locked, status_kept
from .config import RunConfig
from .environment import environment
from .events import Observer, RunResult

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from .data import RunData


def begin(
    fabric: Fabric,
    config: RunConfig,
    *,
    root: Path | str,
    name: str | None,
    observer: Observer | None,
) -> RunResult:
    """Make the folder of a run and train. The settings are valid."""
    data = _load(config)  # first: without data there is no run
    run = None
    if fabric.is_global_zero:
        documents = {"config.json": config.to_dict(), "environment.json": environment()}
        run = create_folder(root, name, folder_stem(config.task, config.attention), documents)
    return _work(fabric, config, data, run, observer)


def go_on(fabric: Fabric, run: Path, *, observer: Observer | None) -> RunResult:
    """Train from the last checkpoint of a run, or give its result if it is finished."""
    if result := read_result(run):
        return result
    config = read_config(run)
    return _work(fabric, config, _load(config), run, observer)


def serve(fabric: Fabric) -> None:
    """Take part in the runs of process 0 until it says that there are no more."""
    while (job := fabric.broadcast(None)) is not None:
        if "run" in job:
            config = RunConfig.from_dict(job["config"])
            with suppress(NotFiniteError):  # process 0 reports it
                _compute(fabric, config, _load(config), Path(job["run"]), None)


def read_config(run: Path) -> RunConfig:
    """The settings of a run folder, valid ones."""
    if not (run / "config.json").is_file():
        raise RunError(f"{run} is not a run folder: it has no config.json")
    config = RunConfig.from_dict(read_json(run / "config.json"))
    config.validate()
    return config


def read_result(run: Path) -> RunResult | None:
    """The result of a run folder; None if it is not finished."""
    path = run / "result.json"
    return RunResult.from_dict(run, read_json(path)) if path.exists() else None


def _load(config: RunConfig) -> RunData:
    from .data import load_data  # imports torch

    return load_data(config)


def _work(
    fabric: Fabric,
    config: RunConfig,
    data: RunData,
    run: Path | None,
    observer: Observer | None,
) -> RunResult:
    with ExitStack() as stack:
        if fabric.is_global_zero and run is not None:
            stack.enter_context(locked(run))
            stack.enter_context(status_kept(run))
        job: dict[str, Any] = fabric.broadcast({"config": config.to_dict(), "run": str(run)})
        return _compute(fabric, config, data, Path(job["run"]), observer)


def _compute(
    fabric: Fabric, config: RunConfig, data: RunData, run: Path, observer: Observer | None
) -> RunResult:
    import torch

    from .session import Session

    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        closing(Session(fabric, config, data, run, observer)) as session,
    ):
        return session.run()
