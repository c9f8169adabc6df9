"""Runs: begin one, or continue it from its folder. Every process of a run calls these alike."""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import NotFiniteError, RunError
from ..runs.files import read_object
from ..runs.folder import create_folder, locked, settle, status_kept
from ..tasks.objective import Objective, RunResult
from .config import EngineConfig, config_in, config_of
from .environment import environment
from .events import Observer

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def begin(
    fabric: Fabric,
    config: EngineConfig,
    *,
    root: Path | str,
    name: str | None,
    observer: Observer | None,
) -> RunResult:
    """Make the folder of a run and train. The settings are valid."""
    objective = load_whole(config)  # first: without data there is no run
    run = None
    if fabric.is_global_zero:
        documents = {"config.json": config.to_dict(), "environment.json": environment()}
        run = create_folder(root, name, config.stem(), documents)
    return _work(fabric, objective, run, observer)


def go_on(fabric: Fabric, run: Path, *, observer: Observer | None) -> RunResult:
    """Train from the last checkpoint of a run, or give its result if it is finished."""
    if result := read_result(run):
        if fabric.is_global_zero:
            settle(run)
        return result
    return _work(fabric, load(read_config(run)), run, observer)


def serve(fabric: Fabric) -> None:
    """Take part in the runs of process 0 until it says that there are no more."""
    while (job := fabric.broadcast(None)) is not None:
        if "run" in job:
            objective = load(config_of(job["config"]))
            with suppress(NotFiniteError):  # process 0 reports it
                _compute(fabric, objective, Path(job["run"]), None)


def read_config(run: Path) -> EngineConfig:
    """The settings of a run folder, valid ones."""
    if not (run / "config.json").is_file():
        raise RunError(f"{run} is not a run folder: it has no config.json")
    return config_in(run / "config.json")


def read_result(run: Path) -> RunResult | None:
    """The result of a run folder; None if it is not finished."""
    from ..tasks import get_task

    path = run / "result.json"
    if not path.exists():
        return None
    stored, result = read_object(run / "config.json"), read_object(path)
    if not isinstance(name := stored.get("task"), str):
        raise RunError(f"{run / 'config.json'} has the task {name!r}; expected a name")
    try:
        return get_task(name).objective.result_class.from_dict(run, result)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def load(config: EngineConfig) -> Objective[Any, Any]:
    """The objective of a run, with its data."""
    from ..tasks import get_task

    task = get_task(config.task).bound(config)
    return task.objective.load(task, config)


def load_whole(config: EngineConfig) -> Objective[Any, Any]:
    """As `load`. The test set of one's own data is read too, and forgotten: what is wrong with it
    is told before the training, not after."""
    from ..tasks import get_task

    objective = load(config)
    if getattr(config, "data", None) or get_task(config.task).any_data:
        objective.test()
    return objective


def _work(
    fabric: Fabric, objective: Objective[Any, Any], run: Path | None, observer: Observer | None
) -> RunResult:
    with ExitStack() as stack:
        if fabric.is_global_zero and run is not None:
            stack.enter_context(locked(run))
            stack.enter_context(status_kept(run))
        settings = objective.config.to_dict()
        job: dict[str, Any] = fabric.broadcast({"config": settings, "run": str(run)})
        return _compute(fabric, objective, Path(job["run"]), observer)


def _compute(
    fabric: Fabric, objective: Objective[Any, Any], run: Path, observer: Observer | None
) -> RunResult:
    import torch

    from .session import Session

    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        closing(Session(fabric, objective, run, observer)) as session,
    ):
        return session.run()
