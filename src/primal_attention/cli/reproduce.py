"""`primal reproduce`: its options, and what it prints. What needs torch is imported late."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson, DataDir, Quiet, parse_seeds
from .sweep import Cluster, Cpus, Gpus, Place, Workers

if TYPE_CHECKING:
    from ..reproduce import Line, PaperTable

EPILOG = "Example: primal reproduce table1/JapaneseVowels --seeds 0-2 --budget 30m"
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE[/PART]",
            help="table1 to table9 or figure1, or a row or column of it: table1/JapaneseVowels.",
        ),
    ],
    *,
    protocol: Annotated[
        str,
        typer.Option(
            help="paper: the best test epoch, as the paper has it. holdout: choose the epoch on a "
            "validation split, use the test set once."
        ),
    ] = "paper",
    seeds: Annotated[str, typer.Option(help="Seeds of every cell, 0-4 or 0,3,7.")] = "0",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Stop after this time, 90s, 30m or 8h; the most telling runs come first. The same "
            "command goes on later.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Tiny runs that show that everything works; no verdicts."),
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed.")] = False,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="A folder whose finished runs count; may be given several times.",
        ),
    ] = None,
    workers: Workers = 1,
    cluster: Cluster = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, help="Folder of all tables; what is done in it is not done again."
        ),
    ] = Path("reproduce"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """A table of the paper next to ours: figures, intervals, verdicts, and what was not run."""
    from ..reproduce import fill, parse_name, table
    from ..reproduce.fill import check_protocol
    from ..reproduce.write import write_all
    from .bench_run import bench_watch
    from .settings import UsageError
    from .show import console

    try:
        table_name, part = parse_name(name)
        check_protocol(table_name, protocol)
        chosen = parse_seeds(seeds)
        seconds = None if budget is None else parse_time(budget)
    except ValueError as error:
        raise UsageError(str(error)) from error
    watch = bench_watch(console(stderr=True), quiet)
    try:
        lines = fill(
            name, out,
            seeds=chosen, protocol=protocol, quick=quick, budget=seconds, data_dir=data_dir,
            adopted=runs or [], retry=retry,
            engine=Place(workers, cluster, cpus, gpus, quiet=quiet), watch=watch,
        )  # fmt: skip
    finally:
        watch.close()
    found = table(table_name)
    options = {"protocol": protocol, "seeds": seeds, "budget": budget}
    words = ["primal", "reproduce", name]
    words += [w for k, v in options.items() if v is not None for w in (f"--{k}", str(v))]
    command = shlex.join([*words, *(["--quick"] if quick else [])])
    written = write_all(found, lines, out, command, protocol=protocol, part=part, quick=quick)
    _show_json(lines, written) if as_json else _show(found, lines, written, protocol)


def parse_time(text: str) -> float:
    """Seconds of "90s", "30m", "1.5h" or "90"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if found is None:
        raise ValueError(f"the time is {text!r}; expected one like 90s, 30m or 8h")
    return float(found[1]) * SECONDS[found[2]]


def _show_json(lines: Sequence[Line], written: Sequence[Path]) -> None:
    import dataclasses

    from .show import show_json

    found: list[dict[str, Any]] = [dataclasses.asdict(line) for line in lines]
    show_json({"cells": found, "files": [str(path) for path in written]})


def _show(found: PaperTable, lines: Sequence[Line], written: Sequence[Path], protocol: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..reproduce.write import TITLES, counted, notes, reasons, texts
    from .show import console, show_rows

    out = console()
    out.print(f"{found.name}: {found.title}", style="bold", highlight=False, markup=False)
    shown = [line for line in lines if line.ours is not None]
    if shown:
        grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for title in TITLES:
            grid.add_column(title, overflow="fold")
        for line in shown:
            grid.add_row(*map(Text, texts(line)))
        out.print(grid, highlight=False)
        out.print()
    for reason in reasons(lines):
        out.print(reason, highlight=False, markup=False, soft_wrap=True)
    out.print()
    for note in notes(found, lines, protocol):
        out.print(f"* {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    rows = {"cells": counted(lines), "wrote": ", ".join(str(path) for path in written)}
    if open_cells := sum(line.unfinished for line in lines):
        rows["left"] = f"{open_cells} cells for want of time; the same command goes on with them"
    show_rows(rows)
