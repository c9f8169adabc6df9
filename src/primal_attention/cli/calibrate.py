"""`primal calibrate`: which predictions of a run may be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Quiet

EPILOG = "Example: primal calibrate runs/uea-JapaneseVowels-primal-001"


def calibrate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", exists=True, file_okay=False, help="The folder of a run, or of seeds."
        ),
    ],
    bins: Annotated[int, typer.Option(min=1, help="Bins of the reliability diagram.")] = 15,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of the bootstrap that intervals come from.")
    ] = 1000,
    draws: Annotated[int, typer.Option(min=1, help="Draws of a Gaussian readout.")] = 16,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """How far stated probabilities are true: ECE, NLL, Brier, AURC with intervals, temperature,
    seeds as an ensemble."""
    from ..report.calibration_figure import draw_calibration
    from ..runs.tables import aligned
    from ..train.calibrate import FILE
    from ..train.calibrate import calibrate as judge
    from .show import console, show_json

    stderr = console(stderr=True)
    found = judge(
        run, bins=bins, resamples=resamples, draws=draws,
        tell=lambda what: None if quiet else stderr.print(what, highlight=False),
    )  # fmt: skip
    written = [run / FILE, *draw_calibration(found.to_dict(), run / "calibration")]
    if as_json:
        show_json(found.to_dict() | {"files": [str(path) for path in written]})
        return
    first = next(iter(found.methods.values()))
    print(
        f"{found.split} set, {first.cases} cases, {first.classes} classes, {len(found.seeds)} seeds"
    )
    print(*aligned(found.rows()), sep="\n")
    if found.temperatures:
        print("temperatures", ", ".join(f"{t:.3g}" for t in found.temperatures))
    print("[95 % intervals]; * differs from the first line, paired, with 0 outside the interval")
    print("strange: valid positions in reversed order (images upside down), told by entropy")
    print(*(f"wrote {path}" for path in written), sep="\n")
