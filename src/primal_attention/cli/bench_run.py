"""`primal bench`: measure, watch, draw, print."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..bench import (
    Cell,
    Plan,
    Results,
    Settings,
    Watch,
    default_candidates,
    match_accuracies,
    parse_candidates,
    parse_lengths,
    read_accuracies,
    read_results,
    run_bench,
    with_references,
)
from ..bench.settings import ARENA
from ..bench.steps import arena_task
from ..bench.table import TITLES, header, quantity_rows, reasons, short
from . import FAILED, INTERRUPTED
from .settings import UsageError
from .show import console, show_json, show_rows

BUDGET, REPEATS = 20.0, 5


def plan_for(
    attention: str | None,
    length: str | None,
    *,
    budget: float | None,
    batch: int | None,
    rank: int | None,
    repeats: int | None,
    **settings: Any,
) -> Plan:
    """The plan that a command line asks for; a task of the arena has a length, a batch, a rank."""
    usual: dict[str, Any] = {"length": "512:65536:x2", "batch": 1, "rank": 20}
    try:
        if settings["what"] in ARENA:
            task = arena_task(settings["what"])
            usual = {
                "length": str(task.padded_length),
                "batch": task.plan.batch_size,
                "rank": task.plan.primalformer.rank,
            }
        settings |= {
            "batch": usual["batch"] if batch is None else batch,
            "rank": usual["rank"] if rank is None else rank,
            "repeats": REPEATS if repeats is None else repeats,
        }
        chosen = default_candidates() if attention is None else parse_candidates(attention)
        lengths = parse_lengths(usual["length"] if length is None else length)
        budget = BUDGET if budget is None else budget
        return Plan(Settings(**settings), with_references(chosen), lengths, budget)
    except ValueError as error:
        raise UsageError(str(error)) from error


def measure(
    plan: Plan, out: Path | None, accuracies: Sequence[Path], *, quiet: bool, as_json: bool
) -> None:
    """Run the plan and print what came out."""
    known = read_accuracies(accuracies)  # a wrong file is told before the work, not after
    stderr = console(stderr=True)
    folder = watched(lambda watch: run_bench(plan, out, watch=watch), plan.command, quiet=quiet)
    results = read_results(folder)
    _draw(folder, results, known, stderr)
    show_json({"folder": str(folder), **results.to_dict()}) if as_json else _show(results, folder)
    if not any(cell.status == "measured" for cell in results.cells.values()):
        raise typer.Exit(FAILED)


def watched(work: Callable[[Watch], Path], command: str, *, quiet: bool) -> Path:
    """The folder that work gives, with its progress on stderr; Ctrl-C says how to go on."""
    stderr = console(stderr=True)
    watch = bench_watch(stderr, quiet)
    try:
        return work(watch)
    except KeyboardInterrupt:
        watch.close()
        if watch.folder is not None:
            command = f"{command} --out {shlex.quote(str(watch.folder))}"
            line(stderr, f"\ninterrupted; continue with: {command}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        watch.close()


# -- progress ------------------------------------------------------------------------------------


class Silent(Watch):
    """Remembers the folder, for the message after Ctrl-C."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def started(self, folder: Path, title: str, cells: int, kept: int) -> None:
        self.folder = folder

    def close(self) -> None:
        """Leave the terminal clean."""


class _PlainLines(Silent):
    """A line for each cell."""

    def __init__(self, stderr: Console) -> None:
        super().__init__()
        self._stderr = stderr

    def started(self, folder: Path, title: str, cells: int, kept: int) -> None:
        super().started(folder, title, cells, kept)
        line(self._stderr, _opening(folder, title, cells, kept))

    def part(self, title: str) -> None:
        line(self._stderr, title)

    def found(self, cell: Cell) -> None:
        line(self._stderr, _describe(cell))


class _LiveLine(Silent):
    """One line that is drawn between the measurements, and gone at the end."""

    def __init__(self, stderr: Console) -> None:
        super().__init__()
        self._stderr = stderr
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:.0f} %"),
            TimeElapsedColumn(),
            console=stderr,
            auto_refresh=False,  # a thread would take time from what is measured
            transient=True,
            expand=True,
        )
        self._task: TaskID | None = None

    def started(self, folder: Path, title: str, cells: int, kept: int) -> None:
        super().started(folder, title, cells, kept)
        line(self._stderr, _opening(folder, title, cells, kept))
        self._task = self._progress.add_task("", total=1.0)
        self._progress.start()

    def working(self, share: float, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=share, description=text, refresh=True)

    def close(self) -> None:
        self._progress.stop()


def bench_watch(stderr: Console, quiet: bool) -> Silent:
    if quiet:
        return Silent()
    return _LiveLine(stderr) if stderr.is_terminal else _PlainLines(stderr)


def _opening(folder: Path, title: str, cells: int, kept: int) -> str:
    before = f", {kept} of them known from before" if kept else ""
    return f"{title}: {cells} cells{before}\n{folder}"


def _describe(cell: Cell) -> str:
    begin = f"N = {cell.length}  {cell.candidate}  "
    if cell.seconds is None or cell.peak_mb is None:
        return f"{begin}{cell.status}: {cell.reason}"
    floor = "" if cell.over_floor is None else f"  {short(cell.over_floor)} x floor"
    return f"{begin}{short(1e3 * cell.seconds)} ms{floor}  {short(cell.peak_mb)} MB"


def line(stderr: Console, text: str) -> None:
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)


# -- output --------------------------------------------------------------------------------------


def _draw(folder: Path, results: Results, accuracies: dict[str, float], stderr: Console) -> None:
    """Pictures beside the results, which do not fail for want of them."""
    if find_spec("matplotlib") is None:
        if accuracies:
            line(stderr, "no pictures: they need matplotlib; install 'primal-attention[plot]'")
        return
    from ..report.bench_figures import bubbles, growth

    try:
        growth(folder)
        if accuracies:
            matched = match_accuracies(results, accuracies)
            bubbles(folder, matched)
            if len(matched) < len(accuracies):
                line(stderr, f"accuracies of {len(accuracies)} names, {len(matched)} measured here")
    except (OSError, ValueError) as error:
        line(stderr, f"no pictures: {error}")


def show_grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with a title; names stand left, numbers right."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*row)
    out = console()
    out.print(title, style="bold", highlight=False, markup=False)
    out.print(table, highlight=False)
    out.print()


def _show(results: Results, folder: Path) -> None:
    out = console()
    for quantity, title in TITLES.items():
        show_grid(title, header(results, quantity), quantity_rows(results, quantity))
    for reason in reasons(results):
        out.print(reason, highlight=False, markup=False, soft_wrap=True)
    show_rows({"results": str(folder)})
