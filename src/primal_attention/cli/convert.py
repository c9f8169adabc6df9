"""`primal convert`: a converted model from an existing one. torch is imported when it runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runs.extras import MissingExtra
from .options import AsJson
from .settings import UsageError

if TYPE_CHECKING:
    from ..convert import Plan

EPILOG = "Example: primal convert models/bert --rank 32 --distill 200 --batches texts.npz -o out"


def convert(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder of a Hugging Face model, a config.json (untrained), or a hub name.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where the converted model goes; without it, plan only."),
    ] = None,
    layers: Annotated[
        str, typer.Option(help="last, all, an index, a slice 2:5 or a regular expression.")
    ] = "last",
    attention: Annotated[str, typer.Option(help="An attention of `primal list`.")] = "primal",
    rank: Annotated[
        int | None,
        typer.Option(help="Directions s of a layer.", show_default="32, or half a head's width"),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="data, free or tied.",
            show_default="tied",
        ),
    ] = None,
    feature_map: Annotated[
        str | None,
        typer.Option(
            help="cosine, elu, softmax, exp, exp-orthogonal, gaussian or inverse_quadratic.",
            show_default="elu with tied weights, else cosine",
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(help="warm: take projections over. fresh: for training from scratch.")
    ] = "warm",
    length: Annotated[int, typer.Option(help="Sequence length of the cost.", min=1)] = 512,
    budget: Annotated[
        str | None,
        typer.Option(help="Measure, and take as many as make attention so much cheaper: 2x."),
    ] = None,
    quality: Annotated[
        float | None,
        typer.Option(help="Measure, and take as many as keep this agreement together: 0.99."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(help="Measure, and take the so many that cost least agreement.", min=1),
    ] = None,
    distill: Annotated[
        int, typer.Option(metavar="N", help="Steps of distillation against the original.", min=0)
    ] = 0,
    batches: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False,
            help="Inputs to measure on and distill with: .npz or .safetensors, named as model "
            "arguments.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples in a step of distillation.", min=1)] = 8,
    model_class: Annotated[
        str | None,
        typer.Option("--class", help="A class of transformers.", show_default="from config.json"),
    ] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Replace attentions of a model by primal, or another; CHANGES THE FUNCTION until trained."""
    given = {"budget": budget, "quality": quality, "count": count}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if batches is None and (distill or asked):
        first = "distill" if distill else next(iter(asked))
        raise UsageError(f"--{first} is given without --batches; expected inputs of the model")
    if distill and out is None:
        raise UsageError("--distill is given without --out; expected a folder for the result")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty; expected a new folder")
    from rich.console import Console

    from ..convert import plan
    from ..convert.opening import open_model, parse_layers, read_batches, write_converted
    from ..report.convert_figure import conversion
    from .progress import Display
    from .show import show_json

    found, trained = open_model(model, model_class)
    options: dict[str, Any] = {"rank": rank, "weights": weights, "feature_map": feature_map}
    options = {name: value for name, value in options.items() if value is not None}
    if attention != "primal":
        options["attention"] = attention
    inputs = None if batches is None else read_batches(batches, batch_size)
    with Display(Console(stderr=True), quiet=as_json) as display:
        planned = plan(
            found, parse_layers(layers),
            length=length, start=start, batches=inputs if asked or out is None else None, **asked,
            tell=lambda done, of, text: display.draw(done, of, "measuring", text), **options,
        )  # fmt: skip
    result: dict[str, Any] = {"plan": [row.__dict__ for row in planned.rows], "trained": trained}
    if planned.measured:
        result["together"] = {name: one._asdict() for name, one in planned.together.items()}
    if not as_json:
        show_plan(planned, trained)
    if out is not None:
        rows = write_converted(
            found, planned, Path(model), out, inputs=inputs if distill else None, steps=distill
        )
        if distill:
            result["distilled"] = [row._asdict() for row in rows]
        with suppress(MissingExtra):  # pictures are an extra
            conversion(planned, out / "layers")
        result["out"] = str(out)
    if as_json:
        show_json(result)
    elif out is not None:
        show_result(result, out)


def show_plan(planned: Plan, trained: bool) -> None:
    from ..convert.planning import WARNING
    from .show import show_table, show_text

    head, *rows, total = planned.table()
    styles = ["" if row.settings else "dim" for row in planned.rows]
    show_text(planned.model)
    show_table(head, [*rows, total], styles=[*styles, "bold"])
    show_text(WARNING, style="yellow")
    if not trained:
        show_text("The model is untrained: nothing was read but its config.json.")


def show_result(result: dict[str, Any], out: Path) -> None:
    from .show import show_rows

    rows = {
        f"distilled {row['name']}": f"relative error {row['before']:.3g} -> {row['after']:.3g}"
        for row in result.get("distilled", ())
    }
    rows["folder"] = str(out)
    rows["next"] = f'model = primal_attention.load("{out}"), then train it'
    show_rows(rows)
