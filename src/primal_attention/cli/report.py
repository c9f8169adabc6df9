"""`primal report`: one HTML page about runs and benchmarks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..train.config import EngineConfig

EPILOG = "Example: primal report runs/softmax runs/primal bench/first --out report.html"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            exists=True,
            file_okay=False,
            help="Folders of runs, of seeds, of primal bench, or folders with these in them.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The file.", show_default="RUN/report.html; of several, report.html"),
    ] = None,
    spectrum: Annotated[
        bool, typer.Option(help="Look at the attention matrices of the best weights.")
    ] = True,
    inputs: Annotated[int, typer.Option(min=1, help="Test cases for the spectrum.")] = 8,
    title: Annotated[
        str | None, typer.Option(help="Title of the page.", show_default="the tasks")
    ] = None,
) -> None:
    """One HTML page: verdict, curves, confusion, spectrum, costs. It opens without a network."""
    from ..report.page import write_page

    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    words = ["primal", "report", *map(str, runs), "--out", str(path), "--inputs", str(inputs)]
    words += [] if spectrum else ["--no-spectrum"]
    words += [] if title is None else ["--title", title]
    written = write_page(
        runs,
        path,
        spectra=spectrum,
        inputs=inputs,
        title=title,
        command=shlex.join(words),
        train_command=_train_command,
    )
    print(f"wrote {written}")


def _train_command(config: EngineConfig, seeds: Sequence[int]) -> str:
    """The command that trained a run, or the seeds of one."""
    from .settings import UsageError, command_for

    numbers = ",".join(map(str, seeds))
    try:
        return command_for(config, **{"seeds" if len(seeds) > 1 else "seed": numbers})
    except UsageError:  # a task or an attention that this version does not know
        return f"primal train {shlex.quote(config.task)} (with settings of another version)"
