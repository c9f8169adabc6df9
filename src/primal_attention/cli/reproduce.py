"""`primal reproduce`: its options, and what it prints. What needs torch is imported late."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..grammar import parse_seeds, parse_time
from .options import AsJson, DataDir, Quiet
from .settings import usage
from .sweep import Cluster, Cpus, Gpus, Workers, sweeping

if TYPE_CHECKING:
    from ..reproduce import Line, PaperTable

EPILOG = "Example: primal reproduce table1/JapaneseVowels --seeds 0-2 --budget 30m"


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
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Run nothing: show the runs that the package was published with, all their seeds.",
        ),
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
    from ..reproduce import fill, parse_name, published_lines, table
    from ..reproduce.fill import check_protocol
    from ..reproduce.write import write_all
    from .bench_watch import BenchWatch
    from .progress import Display
    from .show import console, show_json

    with usage():
        table_name, part = parse_name(name)
        check_protocol(table_name, protocol)
        chosen = parse_seeds(seeds)
        seconds = None if budget is None else parse_time(budget)
        if published:
            running = {"--quick": quick, "--budget": budget, "--retry": retry, "--runs": runs}
            if given := [option for option, value in running.items() if value]:
                raise ValueError(f"{given[0]} is given with --published, which runs nothing")
            lines = published_lines(table_name, part, protocol=protocol)
    if not published:
        with (
            sweeping(workers, cluster, cpus, gpus, quiet=quiet) as place,
            Display(console(stderr=True), quiet=quiet) as display,
        ):
            lines = fill(
                name, out,
                seeds=chosen, protocol=protocol, quick=quick, budget=seconds, data_dir=data_dir,
                adopted=runs or [], retry=retry, engine=place, watch=BenchWatch(display),
            )  # fmt: skip
    found = table(table_name)
    options = {"protocol": protocol, "seeds": None if published else seeds, "budget": budget}
    flags = {"quick": quick, "published": published}
    words = ["primal", "reproduce", name]
    words += [w for k, v in options.items() if v is not None for w in (f"--{k}", str(v))]
    command = shlex.join([*words, *(f"--{flag}" for flag, given in flags.items() if given)])
    written = write_all(found, lines, out, command, protocol=protocol, part=part, **flags)
    if as_json:
        cells = [dataclasses.asdict(line) for line in lines]
        show_json({"cells": cells, "files": [str(path) for path in written]})
    else:
        _show(found, lines, written, protocol)


def _show(found: PaperTable, lines: Sequence[Line], written: Sequence[Path], protocol: str) -> None:
    from ..reproduce.write import TITLES, counted, notes, reasons, texts
    from .show import console, show_rows, show_table, show_text

    show_text(f"{found.name}: {found.title}", style="bold")
    if shown := [texts(line) for line in lines if line.ours is not None]:
        show_table(TITLES, shown)
    show_text(*reasons(lines))
    console().print()
    show_text(*(f"* {note}" for note in notes(found, lines, protocol)), style="dim")
    rows = {"cells": counted(lines), "wrote": ", ".join(str(path) for path in written)}
    if open_cells := sum(line.unfinished for line in lines):
        rows["left"] = f"{open_cells} cells for want of time; the same command goes on with them"
    show_rows(rows)
