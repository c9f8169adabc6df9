"""A benchmark from its plan to its files: cell by cell, and never the same cell twice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from ..runs.errors import RunError
from ..runs.files import explained, write_texts
from ..runs.folder import create_folder, locked
from ..train.environment import environment
from .candidates import FLOOR, MATERIALISED, SOFTMAX, Candidate, parse_candidate
from .growth import forecast
from .measure import clock_of, free_megabytes, interleaved, ratio, threads
from .memory import MemoryMeter, NotMeasured, one_line
from .plan import Plan, Watch
from .results import FILE, Cell, Growing, Results, read_results
from .settings import Settings
from .steps import Step, make_inputs, make_step
from .table import summary

MAKER = "primal_attention.bench.steps:memory_step"
TURN_SECONDS = 0.02  # shorter steps are repeated within their turn
WARM_UP = 2  # calls of a step before it is timed; the first one is checked
USABLE = 0.9  # of the free memory


def run_bench(
    plan: Plan,
    out: Path | str | None = None,
    *,
    watch: Watch | None = None,
    meter: MemoryMeter | None = None,
) -> Path:
    """Measure a plan; returns the folder with results.json, results.csv and table.md.

    In a folder that has results with the same settings, the cells that are measured are kept: a run
    that was killed goes on, and candidates or lengths can be added. Without a folder a new one is
    made under `bench`. `meter` is one that several benchmarks share; it stays open.
    """
    folder = make_folder(out, f"{plan.settings.what.replace('/', '-')}-{plan.settings.mode}")
    with locked(folder), threads(plan.settings.threads):
        results = _open(folder, plan)
        with nullcontext(meter) if meter else open_meter(plan.settings) as own:
            _Bench(plan, results, folder, own, watch or Watch()).run()
        results.write(folder)
        texts = {"results.csv": results.csv(), "table.md": summary(results).markdown()}
        write_texts(folder, texts)
    return folder


def make_folder(out: Path | str | None, stem: str) -> Path:
    """The folder that was asked for, or a new one under `bench`."""
    folder = create_folder("bench", None, stem, {}) if out is None else Path(out)
    with explained(f"make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Bench:
    def __init__(
        self, plan: Plan, results: Results, folder: Path, meter: MemoryMeter, watch: Watch
    ) -> None:
        self.plan, self.results, self.folder = plan, results, folder
        self.meter, self.watch = meter, watch
        self.settings, self.calls = plan.settings, WARM_UP + plan.settings.repeats
        self.done, self.total = 0, 2 * len(plan.candidates) * len(plan.lengths)

    def run(self) -> None:
        every = [(c.text, n) for c in self.plan.candidates for n in self.plan.lengths]
        kept = sum(key in self.results.cells for key in every)
        self.watch.started(self.folder, self.settings.title, len(every), kept)
        for length in self.plan.lengths:
            open_ = [c for c in self.plan.candidates if (c.text, length) not in self.results.cells]
            self.done += 2 * (len(self.plan.candidates) - len(open_))
            ready = {c: mb for c in open_ if (mb := self._memory(c, length)) is not None}
            if ready:
                self._time(ready, length)

    def _memory(self, candidate: Candidate, length: int) -> float | None:
        """Peak megabytes, or None if the candidate cannot be timed at this length."""
        self._working(length, f"memory of {candidate.text}")
        self.done += 1
        if skipped := self._foreseen(candidate.text, length):
            self._put(skipped)
            return None
        job = (self.settings.to_dict(), candidate.text, length)
        try:
            peak = self.meter.peak(
                MAKER, *job, seconds=self.plan.cell_budget, device=self.settings.device
            )
        except NotMeasured as error:
            reason = f"{error}, the budget" if error.status == "time" else str(error)
            self._put(Cell(candidate.text, length, error.status, reason))
        else:
            needed = self.calls * peak.seconds
            if needed <= self.plan.cell_budget:
                return peak.megabytes
            reason = f"{self.calls} steps of {peak.seconds:.3g} s exceed the budget of "
            reason += f"{self.plan.cell_budget:g} s"
            self._put(Cell(candidate.text, length, "time", reason, peak_mb=peak.megabytes))
        return None

    def _foreseen(self, name: str, length: int) -> Cell | None:
        """A cell for what smaller lengths let expect to take too much time or memory."""
        for shorter in (n for n in self.results.lengths if n < length):
            cell = self.results.cells.get((name, shorter))
            if cell is not None and cell.status in ("time", "memory"):
                return Cell(name, length, cell.status, f"as at N = {shorter}: {_core(cell)}")
        seconds = forecast(self._before(name, "seconds", length), length)
        if seconds is not None and self.calls * seconds.value > self.plan.cell_budget:
            return Cell(
                name, length, "time",
                f"{self.calls} steps would take about {self.calls * seconds.value:.3g} s (time "
                f"grows as N^{seconds.exponent:.2f}), more than the budget of "
                f"{self.plan.cell_budget:g} s",
            )  # fmt: skip
        memory = forecast(self._before(name, "peak_mb", length), length)
        free = free_megabytes(self.settings.device)
        if memory is not None and memory.value > USABLE * free:
            return Cell(
                name, length, "memory",
                f"would need about {memory.value:,.0f} MB (memory grows as "
                f"N^{memory.exponent:.2f}), {free:,.0f} MB are free",
            )  # fmt: skip
        return None

    def _before(self, name: str, quantity: Growing, length: int) -> dict[int, float]:
        return {n: v for n, v in self.results.series(name, quantity).items() if n < length}

    def _time(self, ready: dict[Candidate, float], length: int) -> None:
        """Time candidates in common rounds, with the references among them for the ratios."""
        inputs = make_inputs(self.settings, length)
        steps: dict[str, Step] = {}
        for candidate in (*self._known_references(length), *ready):
            self._working(length, f"warm-up of {candidate.text}")
            try:
                steps[candidate.text] = _checked(make_step(self.settings, candidate, inputs))
            except Exception as error:
                if candidate in ready:
                    self._put(Cell(candidate.text, length, "error", one_line(error)))

        repeats = self.settings.repeats
        rounds = interleaved(
            steps, repeats, WARM_UP - 1, least=TURN_SECONDS,
            before_round=lambda i: self._working(length, f"round {i + 1} of {repeats}"),
            clock=clock_of(self.settings.threads, self.settings.device),
        )  # fmt: skip
        self.done += len(ready)
        for candidate, megabytes in ready.items():
            if seconds := rounds.get(candidate.text):
                self._put(
                    Cell(
                        candidate.text, length, "measured", None,
                        seconds=statistics.median(seconds),
                        over_floor=_over(seconds, rounds.get(FLOOR)),
                        over_softmax=_over(seconds, rounds.get(SOFTMAX)),
                        peak_mb=megabytes,
                        rounds=tuple(seconds),
                        over_materialised=_over(seconds, rounds.get(MATERIALISED)),
                        beside=tuple(rounds.get(MATERIALISED, ())),
                    ),
                    write=False,
                )  # fmt: skip
        self.results.write(self.folder)  # cells of common rounds at once

    def _known_references(self, length: int) -> list[Candidate]:
        """Those that were measured before, and are timed again beside new candidates."""
        cells, asked = self.results.cells, self.results.candidates
        known = [n for n in (FLOOR, SOFTMAX, MATERIALISED) if n in asked and (n, length) in cells]
        return [parse_candidate(n) for n in known if cells[n, length].status == "measured"]

    def _put(self, cell: Cell, *, write: bool = True) -> None:
        self.results.cells[cell.candidate, cell.length] = cell
        if write:
            self.results.write(self.folder)
        self.watch.found(cell)

    def _working(self, length: int, text: str) -> None:
        self.watch.working(self.done / self.total, f"N = {length}: {text}")


def open_meter(settings: Settings) -> MemoryMeter:
    """Optimisers import the compiler with their first step, which takes seconds: here once."""
    optimises = settings.what != "block" and settings.mode == "training"
    return MemoryMeter(*(["torch._dynamo"] if optimises else []))


def _checked(step: Step) -> Step:
    """The step, after its first call gave finite numbers."""
    if not bool(step().isfinite().all()):
        raise ValueError("the output is not finite")
    return step


def _over(seconds: Sequence[float], unit: Sequence[float] | None) -> float | None:
    return None if unit is None else ratio(seconds, unit)


def _core(cell: Cell) -> str:
    """The reason itself, where it was taken over from a shorter length."""
    reason = cell.reason or ""
    return reason.partition(": ")[2] if reason.startswith("as at N = ") else reason


def _open(folder: Path, plan: Plan) -> Results:
    """The results to go on with: empty, or what a folder has measured with the same settings."""
    results = Results(
        settings=plan.settings,
        candidates=tuple(candidate.text for candidate in plan.candidates),
        lengths=plan.lengths,
        cell_budget=plan.cell_budget,
        command=plan.command,
        environment=environment(),
    )
    if not (folder / FILE).exists():
        return results
    old = read_results(folder)
    then = old.settings.to_dict() | old.environment
    for name, now in (plan.settings.to_dict() | results.environment).items():
        if then.get(name) != now:
            raise RunError(
                f"{folder} has results with {name} = {then.get(name)}, but here it is {now}; "
                "expected another folder, or the same settings to go on"
            )
    results.cells = {key: cell for key, cell in old.cells.items() if cell.status == "measured"}
    return results
