"""What the page is made from: runs, folders of seeds, benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...bench import Results, read_results
from ...runs.errors import RunError
from ...runs.files import read_json
from ...runs.statistics import mean_interval
from ...tasks.classification.result import ACCURACY
from ...tasks.objective import Measure
from ...train.config import EngineConfig
from ...train.seeds import SEEDS_FILE, seeds_in
from ..runs import Trained, read_run

BENCH_FILE = "results.json"
MOST_DETAILED = 8


@dataclass(frozen=True)
class Entry:
    """A configuration with its runs, one a seed; `missing` says which seeds are not there."""

    key: int  # its place, and its colour
    name: str
    runs: tuple[Trained, ...]
    missing: tuple[str, ...]
    commands: tuple[str, ...]  # that trained it, where known

    @property
    def config(self) -> EngineConfig:
        return self.runs[0].config

    @property
    def attention(self) -> str:
        """The layers in words: "primal x 2", "softmax + primal"."""
        names = self.config.attention
        return f"{names[0]} × {len(names)}" if len(set(names)) == 1 else " + ".join(names)

    @property
    def label(self) -> str:
        return self.runs[0].label

    @property
    def measure(self) -> Measure:
        return self.runs[0].measure

    @property
    def protocol(self) -> str | None:
        return self.runs[0].protocol

    @property
    def values(self) -> list[float]:
        """One for each seed, in the unit of the measure."""
        return [run.value for run in self.runs]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean by Student's t, from two seeds on, as far as the measure
        goes."""
        found = mean_interval(self.values)[2]
        return None if found is None else (self.measure.clip(found[0]), self.measure.clip(found[1]))

    def mean_of(self, quantity: str) -> float | None:
        """The mean of a number in the results; None where one lacks it."""
        found = [run.result.get(quantity) for run in self.runs]
        if any(not isinstance(value, int | float) for value in found):
            return None
        return statistics.fmean(float(value) for value in found if value is not None)


@dataclass(frozen=True)
class Bench:
    """The folder of a benchmark."""

    name: str
    results: Results


@dataclass(frozen=True)
class Sources:
    """Everything that was given, and the command that asked for the page."""

    entries: tuple[Entry, ...]
    benches: tuple[Bench, ...]
    command: str
    notes: tuple[str, ...] = ()  # what was left out

    @property
    def detailed(self) -> list[Entry]:
        """Those with pictures of their own: all, or of many the best of each task."""
        if len(self.entries) <= MOST_DETAILED:
            return list(self.entries)
        best: dict[str, Entry] = {}
        for entry in self.entries:
            task = entry.config.task
            best[task] = max(best.get(task, entry), entry, key=lambda one: one.mean)
        return list(best.values())[:MOST_DETAILED]

    @property
    def selection(self) -> list[str]:
        """What to say where only `detailed` are shown."""
        if len(self.detailed) == len(self.entries):
            return []
        return [f"Of {len(self.entries)} configurations, the best of each task is shown."]

    @property
    def commands(self) -> list[str]:
        """The trainings, and the page."""
        return [*(c for entry in self.entries for c in entry.commands), self.command]


TrainCommand = Callable[[EngineConfig, Sequence[int]], str]  # settings and seeds to a command line


def read_sources(
    paths: Iterable[Path | str], command: str, train_command: TrainCommand | None = None
) -> Sources:
    """Read folders: of a run, of seeds, of a benchmark, or of several of these. A RunError says
    what is wrong with one; inside a folder of several, what is not finished is only noted."""
    given = [Path(path) for path in paths]
    if not given:
        raise ValueError("the report was given no folder; expected at least one run or benchmark")
    entries: list[Entry] = []
    benches: list[Bench] = []
    left_out: list[str] = []
    found = [(part, part != path) for path in given for part in _parts(path)]
    names = short_paths(list(dict.fromkeys(part for part, _ in found)))
    for part, inner in dict(found).items():
        try:
            if (part / BENCH_FILE).exists():
                benches.append(Bench(names[part], read_results(part)))
            else:
                entries.append(_entry(part, len(entries), names[part], train_command))
        except RunError as error:
            if not inner:
                raise
            left_out.append(f"Left out: {error}.")
    if not entries and not benches:
        raise RunError(f"{given[0]} has no finished run in it; expected at least one")
    return Sources(tuple(entries), tuple(benches), command, tuple(left_out))


def _parts(path: Path) -> list[Path]:
    """The folder itself, or those inside that are runs, seeds or benchmarks."""
    marks = ("config.json", "result.json", SEEDS_FILE, BENCH_FILE)

    def is_one(folder: Path) -> bool:
        return any((folder / mark).exists() for mark in marks)

    if not path.is_dir():
        raise RunError(f"{path} is not a folder; expected that of a run, of seeds or a benchmark")
    if is_one(path):
        return [path]
    places = (path, path / "runs")  # the latter of a sweep
    inside = sorted(
        folder
        for place in places
        if place.is_dir()
        for folder in place.iterdir()
        if folder.is_dir() and is_one(folder)
    )
    if not inside:
        raise RunError(
            f"{path} has neither config.json nor {SEEDS_FILE} nor {BENCH_FILE}; expected the "
            "folder of a run, of seeds or of a benchmark"
        )
    return inside


def _entry(path: Path, key: int, name: str, train_command: TrainCommand | None) -> Entry:
    missing: list[str] = []
    if (path / SEEDS_FILE).exists():
        runs = _seeds(path, missing)
        if not runs:
            raise RunError(f"{path} has no finished seed; expected at least one")
    else:
        runs = [read_run(path)]
    commands: tuple[str, ...] = ()
    if train_command is not None and runs[0].measure == ACCURACY:
        commands = (train_command(runs[0].config, [run.seed for run in runs]),)
    return Entry(key, name, tuple(runs), tuple(missing), commands)


def _seeds(path: Path, missing: list[str]) -> list[Trained]:
    runs = []
    for seed in seeds_in(path):
        run = path / f"seed-{seed}"
        if (run / "result.json").exists():
            runs.append(read_run(run))
        else:
            missing.append(f"seed {seed}: {_status(run)}")
    return runs


def _status(run: Path) -> str:
    if not run.is_dir():
        return "not started"
    if not (run / "status.json").exists():
        return "unfinished"
    found = read_json(run / "status.json")
    known = found if isinstance(found, dict) else {}
    status, reason = known.get("status", "unfinished"), known.get("reason")
    return f"{status}: {reason}" if reason else str(status)


def short_paths(paths: Sequence[Path]) -> dict[Path, str]:
    """The last part of each path, and as many before it as tell equal ones apart."""
    whole = {path: path.resolve().parts for path in paths}
    count = dict.fromkeys(paths, 1)
    while True:
        names = {path: "/".join(whole[path][-count[path] :]) for path in paths}
        same = [p for p in paths if list(names.values()).count(names[p]) > 1]
        longer = [p for p in same if count[p] < len(whole[p])]
        if not longer:
            return names
        for path in longer:
            count[path] += 1
