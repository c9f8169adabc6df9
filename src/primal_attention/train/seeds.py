"""The same run with several seeds: a folder each, and the mean with its uncertainty.

<name>/seeds.json      the settings and the seeds
<name>/seed-0/ ...     a run folder for every seed
<name>/summary.json    mean, deviation and interval; the seeds that failed
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import NotFiniteError, RunError
from ..runs.files import explained, read_json, write_json
from ..runs.folder import create_folder, folder_stem, locked
from ..runs.statistics import mean_interval
from .config import RunConfig
from .events import Observer, RunResult
from .run import begin, go_on

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SEEDS_FILE = "seeds.json"


@dataclass(frozen=True)
class SeedsResult:
    """What a configuration is worth over seeds. `interval` is the 95 % interval of the mean by
    Student's t, `deviation` the sample standard deviation; None with fewer than two results."""

    run: Path
    label: str
    results: dict[int, RunResult]  # by seed
    failed: dict[int, str]  # seed: reason
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "label": self.label,
            "accuracies": {str(seed): r.accuracy for seed, r in self.results.items()},
            "failed": {str(seed): reason for seed, reason in self.failed.items()},
            "mean": self.mean,
            "deviation": self.deviation,
            "interval": None if self.interval is None else list(self.interval),
            "seconds": sum(r.seconds for r in self.results.values()),
        }


def check_seeds(config: RunConfig, seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {list(seeds)}; expected different integers, at least one")
    for seed in seeds:
        dataclasses.replace(config, seed=seed).validate()


def begin_seeds(
    fabric: Fabric,
    config: RunConfig,
    seeds: Sequence[int],
    *,
    root: Path | str,
    name: str | None,
    observer: Observer | None,
) -> SeedsResult:
    """Make the folder and train one seed after the other. The settings are valid."""
    from .data import load_data  # imports torch

    folder = None
    if fabric.is_global_zero:
        load_data(dataclasses.replace(config, seed=seeds[0]))  # without data there is no folder
        document = {"config": config.to_dict(), "seeds": list(seeds)}
        folder = create_folder(
            root,
            name,
            f"{folder_stem(config.task, config.attention)}-seeds",
            {SEEDS_FILE: document},
        )
    told: dict[str, Any] = fabric.broadcast({"folder": str(folder)})
    return go_on_seeds(fabric, Path(told["folder"]), observer=observer)


def go_on_seeds(fabric: Fabric, folder: Path, *, observer: Observer | None) -> SeedsResult:
    """Continue where it stopped; seeds that failed are tried again."""
    config, seeds = read_seeds(folder)
    results: dict[int, RunResult] = {}
    failed: dict[int, str] = {}
    with ExitStack() as stack:
        if fabric.is_global_zero:
            stack.enter_context(locked(folder))
        for seed in seeds:
            run = folder / f"seed-{seed}"
            own = dataclasses.replace(config, seed=seed)
            try:
                if run.exists():
                    results[seed] = go_on(fabric, run, observer=observer)
                else:
                    results[seed] = begin(
                        fabric, own, root=folder, name=run.name, observer=observer
                    )
            except NotFiniteError as error:
                failed[seed] = str(error)
        summary = _summarise(folder, results, failed)
        if fabric.is_global_zero:
            with explained(f"write into {folder}"):
                write_json(folder / "summary.json", summary.to_dict())
    return summary


def read_seeds(folder: Path) -> tuple[RunConfig, list[int]]:
    """The settings and the seeds of a folder."""
    document = read_json(folder / SEEDS_FILE)
    return RunConfig.from_dict(document["config"]), document["seeds"]


def _summarise(folder: Path, results: dict[int, RunResult], failed: dict[int, str]) -> SeedsResult:
    if not results:
        raise RunError(f"every seed failed: {next(iter(failed.values()))}")
    accuracies = [result.accuracy for result in results.values()]
    mean, deviation, interval = mean_interval(accuracies)
    label = next(iter(results.values())).label
    return SeedsResult(folder, label, results, failed, mean, deviation, interval)
