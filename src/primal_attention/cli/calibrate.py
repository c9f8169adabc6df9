"""`primal calibrate`: which predictions of a model may be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Quiet

EPILOG = "Example: primal calibrate runs/uea-JapaneseVowels-primal-001"

Data = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        help="Cases with their classes, for an estimator (as for training) or for a Hugging Face "
        "classifier (a table with a column text).",
    ),
]
Target = Annotated[str | None, typer.Option(help="Column of --data that has the classes.")]
Id = Annotated[str | None, typer.Option(help="Column of --data that names the cases.")]
Time = Annotated[str | None, typer.Option(help="Column of --data that orders their rows.")]
Out = Annotated[
    Path | None,
    typer.Option(
        file_okay=False, help="Where the files go.", show_default="RUN; of an estimator, here"
    ),
]


def calibrate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL",
            exists=True,
            file_okay=False,
            help="The folder of a run, of seeds, of a saved estimator, or of a Hugging Face "
            "classifier.",
        ),
    ],
    data: Data = None,
    target: Target = None,
    id: Id = None,
    time: Time = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the reliability diagram.")] = 15,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of the bootstrap that intervals come from.")
    ] = 1000,
    draws: Annotated[int, typer.Option(min=1, help="Draws of a Gaussian readout.")] = 16,
    cases: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="About so many events or tokens, in whole sequences spread over all.",
            show_default="20000",
        ),
    ] = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """How far stated probabilities are true: ECE, NLL, Brier, AURC with intervals, temperature,
    seeds as an ensemble; of events the gaps too."""
    from ..report.calibration_figure import draw_calibration
    from ..runs.tables import aligned
    from ..tasks.own.columns import Columns
    from ..train.calibrate import FILE, calibrate_folder
    from ..train.folders import place_for
    from .show import console, show_json

    stderr = console(stderr=True)
    found = calibrate_folder(
        run, data=data, columns=Columns(target=target, id=id, time=time), most=cases,
        bins=bins, resamples=resamples, draws=draws, out=out,
        tell=lambda what: None if quiet else stderr.print(what, highlight=False),
    )  # fmt: skip
    place = place_for(run, out)
    written = [place / FILE, *draw_calibration(found.to_dict(), place / "calibration")]
    if as_json:
        show_json(found.to_dict() | {"files": [str(path) for path in written]})
        return
    first = next(iter(found.methods.values()))
    seeds = f", {len(found.seeds)} seeds" if found.seeds else ""
    print(found.sentence())
    print(f"{found.split} set, {first.cases} {found.noun}, {first.classes} classes{seeds}")
    print(*aligned(found.rows()), sep="\n")
    if found.temperatures:
        print("temperatures", ", ".join(f"{t:.3g}" for t in found.temperatures))
    if found.gaps is not None:
        print(found.gaps)
    print("[95 % intervals]; * differs from the first line, paired, with 0 outside the interval")
    print(f"strange: {found.turned}, told by entropy")
    print(*(f"wrote {path}" for path in written), sep="\n")
