"""`primal explain`: which few positions a prediction hangs on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Quiet

EPILOG = "Example: primal explain runs/uea-JapaneseVowels-primal-001 --case 12"


def explain(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL",
            exists=True,
            file_okay=False,
            help="The folder of a run (of seeds: the first), or of a Hugging Face classifier.",
        ),
    ],
    case: Annotated[int, typer.Option(min=0, help="Which case, or line of --text, from 0.")] = 0,
    split: Annotated[
        str, typer.Option(help="selection: the cases that chose the epoch. test: the test set.")
    ] = "selection",
    text: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Text for a Hugging Face classifier."),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(
            min=1, help="Equal parts to remove.", show_default="words, 16 segments, a grid of 8 x 8"
        ),
    ] = None,
    order: Annotated[
        str, typer.Option(help="What is tried first: attention, graph, greedy, gradient, random.")
    ] = "attention",
    most: Annotated[int, typer.Option(min=1, help="The largest set to try.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="How many sets to try.")] = 500,
    out: Annotated[
        Path | None, typer.Option(help="Where the files go.", show_default="RUN")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """The smallest sets of positions without which the model says another class, each verified by
    the model."""
    from ..names import check_choice
    from ..report.explanations import explain_folder, write_explanation
    from .progress import Display
    from .settings import usage
    from .show import console, show_json

    with usage():
        check_choice("--split", split, ("selection", "test"))
        check_choice("--order", order, ("graph", "greedy", "attention", "gradient", "random"))
    with Display(console(stderr=True), quiet=quiet) as display:
        told = explain_folder(
            run, case, text=text, units=units, split=split, order=order, most=most, budget=budget,
            tell=lambda done, total: display.draw(done, total, "sets tried"),
        )  # fmt: skip
    written = write_explanation(told, run if out is None else out)
    if as_json:
        show_json(told.to_dict() | {"files": [str(path) for path in written]})
        return
    true = "" if told.true is None else f" (true class: {told.true})"
    print(f"case {told.name}{true}: {told.sentence()}")
    print(*(f"wrote {path}" for path in written), sep="\n")
