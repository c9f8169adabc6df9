"""`primal explain`: which few positions a prediction hangs on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .calibrate import Data, Id, Out, Target, Time
from .options import AsJson, Quiet

EPILOG = "Example: primal explain runs/uea-JapaneseVowels-primal-001 --case 12"


def explain(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL",
            exists=True,
            file_okay=False,
            help="The folder of a run (of seeds: the first), of a saved estimator, or of a Hugging "
            "Face classifier.",
        ),
    ],
    case: Annotated[
        int,
        typer.Option(min=0, help="Which case, sequence, piece of text or line of --text, from 0."),
    ] = 0,
    at: Annotated[
        int | None,
        typer.Option(
            min=2, help="Which event or token of it is predicted.", show_default="the last"
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="selection: the cases that chose the epoch. test: the test set.")
    ] = "selection",
    text: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Text for a Hugging Face classifier."),
    ] = None,
    data: Data = None,
    target: Target = None,
    id: Id = None,
    time: Time = None,
    units: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Equal parts to remove.",
            show_default="words, events, 16 segments, a grid of 8 x 8",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="What is tried first: attention, graph, greedy, gradient, random.",
            show_default="attention",
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="The largest set to try.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="How many sets to try.")] = 500,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """The smallest sets of positions without which the model says another class, or expects another
    event or token next, each verified by the model."""
    from ..names import check_choice
    from ..report.explanations import explain_folder
    from ..report.told import write_explanation
    from ..tasks.own.columns import Columns
    from ..train.folders import place_for
    from .progress import Display
    from .settings import usage
    from .show import console, show_json

    with usage():
        check_choice("--split", split, ("selection", "test"))
        if order is not None:
            check_choice("--order", order, ("graph", "greedy", "attention", "gradient", "random"))
    with Display(console(stderr=True), quiet=quiet) as display:
        told = explain_folder(
            run, case, data=data, text=text, columns=Columns(target=target, id=id, time=time),
            at=at, units=units, split=split, order=order, most=most, budget=budget,
            tell=lambda done, total: display.draw(done, total, "sets tried"),
        )  # fmt: skip
    written = write_explanation(told, place_for(run, out))
    if as_json:
        show_json(told.to_dict() | {"files": [str(path) for path in written]})
        return
    true = "" if told.true is None else f" (true class: {told.true})"
    print(f"case {told.name}{true}: {told.sentence()}")
    print(*(f"wrote {path}" for path in written), sep="\n")
