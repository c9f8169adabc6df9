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
from ..runs.files import explained, read_json, read_object, write_json
from ..runs.folder import create_folder, locked
from ..runs.statistics import mean_interval
from ..tasks.objective import Command, RunResult
from .config import EngineConfig, valid_config
from .events import Observer
from .run import begin, go_on, load_whole

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SEEDS_FILE = "seeds.json"


@dataclass(frozen=True)
class SeedsResult:
    """What a configuration is worth over seeds: the mean of what is measured. `interval` is the
    95 % interval of the mean by Student's t, `deviation` the sample standard deviation; None with
    fewer than two results."""

    run: Path
    results: dict[int, RunResult]  # by seed
    failed: dict[int, str]  # seed: reason
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None

    @property
    def first(self) -> RunResult:
        return next(iter(self.results.values()))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **type(self.first).seed_documents(self.results),
            "failed": {str(seed): reason for seed, reason in self.failed.items()},
            "mean": self.mean,
            "deviation": self.deviation,
            "interval": None if self.interval is None else list(self.interval),
            "seconds": sum(r.seconds for r in self.results.values()),
        }

    def rows(self, command: Command) -> dict[str, str]:
        """What a person reads."""
        measure = self.first.measure
        unit = f" {measure.unit}" if measure.unit else ""
        mean = f"{measure.shown(self.mean):.1f}{unit}"
        if self.deviation is not None and self.interval is not None:
            low, high = (measure.clip(measure.shown(end)) for end in self.interval)
            mean += f" ± {measure.shown(self.deviation):.1f}, 95 % interval of the mean {low:.1f}"
            mean += f" to {high:.1f}{unit}"
        failed = {f"seed {seed}": f"failed: {reason}" for seed, reason in self.failed.items()}
        return type(self.first).seed_rows(self.results, mean, command) | failed


def check_seeds(config: EngineConfig, seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {list(seeds)}; expected different integers, at least one")
    for seed in seeds:
        dataclasses.replace(config, seed=seed).validate()


def begin_seeds(
    fabric: Fabric,
    config: EngineConfig,
    seeds: Sequence[int],
    *,
    root: Path | str,
    name: str | None,
    observer: Observer | None,
) -> SeedsResult:
    """Make the folder and train one seed after the other. The settings are valid."""
    folder = None
    if fabric.is_global_zero:
        load_whole(dataclasses.replace(config, seed=seeds[0]))  # without data there is no folder
        document = {"config": config.to_dict(), "seeds": list(seeds)}
        folder = create_folder(root, name, f"{config.stem()}-seeds", {SEEDS_FILE: document})
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
        if not results:
            raise RunError(f"every seed failed: {next(iter(failed.values()))}")
        figures = [result.figure for result in results.values()]
        summary = SeedsResult(folder, results, failed, *mean_interval(figures))
        if fabric.is_global_zero:
            with explained(f"write into {folder}"):
                write_json(folder / "summary.json", summary.to_dict())
    return summary


def read_seeds(folder: Path) -> tuple[EngineConfig, list[int]]:
    """The settings and the seeds of a folder."""
    seeds, file = seeds_in(folder), folder / SEEDS_FILE
    return valid_config(read_object(file).get("config"), file), seeds


def seeds_in(folder: Path) -> list[int]:
    """The seeds of a folder, whether they were trained or not."""
    document = read_json(folder / SEEDS_FILE)
    seeds = document.get("seeds") if isinstance(document, dict) else None
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise RunError(f"{folder / SEEDS_FILE} names no seeds; expected a list of them")
    return seeds
