"""`primal predict`: a trained run and new cases give a csv file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from .options import Quiet
from .settings import UsageError

EPILOG = "Example: primal predict runs/sensors-primal+primal-001 new.csv --out predictions.csv"

Run = Annotated[
    Path, typer.Argument(metavar="RUN", exists=True, file_okay=False, help="A finished run.")
]


def predict(
    run: Run,
    new: Annotated[
        Path,
        typer.Argument(
            metavar="NEW", exists=True, help="Cases as in training: .csv, .npz, .ts, or a folder."
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The csv file.", show_default="stdout")
    ] = None,
    id: Annotated[str | None, typer.Option(help="Column that names the cases.")] = None,
    time: Annotated[str | None, typer.Option(help="Column that orders their rows.")] = None,
    quiet: Quiet = False,
) -> None:
    """Predict new cases: a line for each, with the probability of every class. Large csv files
    stream through: rows of a case must follow one another."""
    from ..runs.files import explained, replacing
    from .progress import Display
    from .show import console

    with Display(console(stderr=True), quiet=quiet) as display:

        def tell(done: int) -> None:
            display.draw(done, None, f"{new}:", f"{done:,} cases")

        write = _of_events(run, new, id, time) or _of_cases(run, new, id, time, tell)
        if out is None:
            write(sys.stdout)
            return
        with (
            explained(f"write {out}"),
            replacing(out) as beside,
            open(beside, "w", encoding="utf-8", newline="") as file,
        ):
            done = write(file)
    if not quiet:
        typer.echo(f"{done:,} cases in {out}", err=True)


Write = Callable[[IO[str]], int]  # writes the predictions; how many there were


def _of_cases(
    run: Path, new: Path, id: str | None, time: str | None, tell: Callable[[int], None]
) -> Write:
    import dataclasses

    from ..train.trained import load_run
    from ..train.trained.predict import predict_file

    model = load_run(run)
    named: dict[str, Any] = {
        name: value for name, value in (("id", id), ("time", time)) if value is not None
    }
    columns = dataclasses.replace(model.columns, **named)
    return lambda file: predict_file(model, new, file, columns=columns, tell=tell)


def _of_events(run: Path, new: Path, id: str | None, time: str | None) -> Write | None:
    """None if the run is one of cases."""
    from ..train.streams import predict_events, reads

    if reads(run) != "events":
        return None
    if id is not None or time is not None:
        raise UsageError(
            "--id and --time are for series; expected the columns sequence, time, type"
        )
    return lambda file: predict_events(run, new, file)
