"""Runs that learn to act: begin one, continue it from its folder, or one for each of some seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runs.errors import NotFiniteError, RunError
from ...runs.files import explained, read_json, write_json
from ...runs.folder import create_folder, folder_stem, locked, status_kept
from ...runs.statistics import mean_interval
from ..environment import environment
from ..seeds import SEEDS_FILE
from .config import DecisionConfig
from .events import DecisionObserver, DecisionResult

if TYPE_CHECKING:
    from ...models.decision import DecisionTransformer
    from ...tasks.rl import RLTask, Trajectories


@dataclass(frozen=True)
class DecisionSeeds:
    """What a configuration is worth over seeds: normalised scores, their mean, sample standard
    deviation and 95 % interval of the mean (None with a single seed)."""

    run: Path
    results: dict[int, DecisionResult]  # by seed
    failed: dict[int, str]  # seed: reason
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "scores": {str(seed): r.score for seed, r in self.results.items()},
            "returns": {str(seed): r.returned for seed, r in self.results.items()},
            "failed": {str(seed): reason for seed, reason in self.failed.items()},
            "mean": self.mean,
            "deviation": self.deviation,
            "interval": None if self.interval is None else list(self.interval),
            "seconds": sum(r.seconds for r in self.results.values()),
        }


def train_decision(
    config: DecisionConfig,
    *,
    root: Path | str = "runs",
    name: str | None = None,
    observer: DecisionObserver | None = None,
) -> DecisionResult:
    """Train in a new folder under root, `<task>-<attention>-<n>` unless it has a name.

    Ctrl-C and SIGTERM end it with a checkpoint and a KeyboardInterrupt; whatever ends it,
    `resume_decision` continues as if nothing had happened, on a CPU to the last bit.
    """
    config.validate()
    config = config.resolved()
    data = _load(config)  # first: without data or an environment there is no run
    return _begin(config, data, root, name, observer)


def resume_decision(
    run: Path | str, *, observer: DecisionObserver | None = None
) -> DecisionResult | DecisionSeeds:
    """Continue a run, or a folder of seeds, where it stopped; a finished run gives its result."""
    run = Path(run)
    if (run / SEEDS_FILE).exists():
        return _go_on_seeds(run, observer)
    if (run / "result.json").exists():
        return DecisionResult.from_dict(run, read_json(run / "result.json"))
    config = read_decision_config(run)
    return _work(run, config, _load(config), observer)


def train_decision_seeds(
    config: DecisionConfig,
    seeds: Sequence[int],
    *,
    root: Path | str = "runs",
    name: str | None = None,
    observer: DecisionObserver | None = None,
) -> DecisionSeeds:
    """Train once per seed, in one folder."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {list(seeds)}; expected different integers, at least one")
    for seed in seeds:
        dataclasses.replace(config, seed=seed).validate()
    config = config.resolved()
    data = _load(config)
    document = {"config": config.to_dict(), "seeds": list(seeds)}
    folder = create_folder(root, name, f"{_stem(config)}-seeds", {SEEDS_FILE: document})
    return _go_on_seeds(folder, observer, data)


def is_decision_run(run: Path | str) -> bool:
    """Whether a folder is a run, or seeds, of this kind."""
    run = Path(run)
    if (run / SEEDS_FILE).exists():
        settings = read_json(run / SEEDS_FILE).get("config", {})
    elif (run / "config.json").exists():
        settings = read_json(run / "config.json")
    else:
        return False
    return str(settings.get("task", "")).startswith("rl/")


def read_decision_config(run: Path) -> DecisionConfig:
    """The settings of a run folder, valid ones."""
    if not (run / "config.json").is_file():
        raise RunError(f"{run} is not a run folder: it has no config.json")
    config = DecisionConfig.from_dict(read_json(run / "config.json"))
    config.validate()
    return config


def load_decision_model(run: Path | str) -> DecisionTransformer:
    """The trained model of a finished run, ready to act; the data are not needed."""
    from ..checkpoint import tensors_from_bytes
    from .session import build_model

    run = Path(run)
    config = read_decision_config(run)
    with explained(f"read the weights of {run}"):
        weights = tensors_from_bytes((run / "last.safetensors").read_bytes())
    model = build_model(
        config,
        state_dim=weights["embed_state.weight"].shape[1],
        action_dim=weights["embed_action.weight"].shape[1],
        horizon=weights["embed_time.weight"].shape[0],
    )
    model.load_state_dict(weights)
    return model.eval()


def _go_on_seeds(
    folder: Path, observer: DecisionObserver | None, data: Trajectories | None = None
) -> DecisionSeeds:
    """Continue where it stopped; seeds that failed are tried again."""
    document = read_json(folder / SEEDS_FILE)
    config = DecisionConfig.from_dict(document["config"])
    config.validate()
    results: dict[int, DecisionResult] = {}
    failed: dict[int, str] = {}
    with locked(folder):
        for seed in document["seeds"]:
            run, own = folder / f"seed-{seed}", dataclasses.replace(config, seed=seed)
            if (run / "result.json").exists():
                results[seed] = DecisionResult.from_dict(run, read_json(run / "result.json"))
                continue
            data = _load(config) if data is None else data
            try:
                if run.exists():
                    results[seed] = _work(run, read_decision_config(run), data, observer)
                else:
                    results[seed] = _begin(own, data, folder, run.name, observer)
            except NotFiniteError as error:
                failed[seed] = str(error)
        if not results:
            raise RunError(f"every seed failed: {next(iter(failed.values()))}")
        scores = [result.score for result in results.values()]
        summary = DecisionSeeds(folder, results, failed, *mean_interval(scores))
        with explained(f"write into {folder}"):
            write_json(folder / "summary.json", summary.to_dict())
    return summary


def _task(config: DecisionConfig) -> RLTask:
    from ...tasks.rl import get_rl_task  # imports torch

    return get_rl_task(config.task)


def _load(config: DecisionConfig) -> Trajectories:
    """The episodes. The environment is tried as well: a run needs it after its first epoch only,
    and hours of training would be lost if it could not be made or did not fit."""
    from ...tasks.rl.environments import check_fits

    task = _task(config)
    data = task.load(config.data_dir)
    check_fits(task.environment, data)
    return data


def _stem(config: DecisionConfig) -> str:
    return folder_stem(config.task, config.attention) + ("" if config.conditioned else "-cloning")


def _begin(
    config: DecisionConfig,
    data: Trajectories,
    root: Path | str,
    name: str | None,
    observer: DecisionObserver | None,
) -> DecisionResult:
    documents = {"config.json": config.to_dict(), "environment.json": environment()}
    return _work(create_folder(root, name, _stem(config), documents), config, data, observer)


def _work(
    run: Path, config: DecisionConfig, data: Trajectories, observer: DecisionObserver | None
) -> DecisionResult:
    import torch

    from .session import DecisionSession, _device

    task = _task(config)
    devices = [0] if _device(config.accelerator).type == "cuda" else []
    with (
        locked(run),
        status_kept(run),
        torch.random.fork_rng(devices),
        closing(DecisionSession(config, task, data, run, observer)) as session,
    ):
        return session.run()
