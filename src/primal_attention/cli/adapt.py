"""`primal adapt`: a converted model that does what the original did. torch is imported at work."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson, Quiet
from .settings import UsageError

if TYPE_CHECKING:
    from ..bench.lengths import Pace
    from ..train.adapt import Adaptation

EPILOG = "Example: primal adapt models/bert --batches texts.npz --layers -4: --steps 1000 -o out"


def adapt(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A folder of a Hugging Face model, or a name of the hub."
        ),
    ],
    *,
    batches: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False,
            help="Inputs: .npz or .safetensors, named as model arguments.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the model and its page go.")],
    layers: Annotated[
        str, typer.Option(help="last, all, an index, a slice -4: or a regular expression.")
    ] = "last",
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of these, so many: those that change the model's outputs least, by measurement.",
            show_default="all of them",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Of these, as many as make attention so much cheaper at --length: 2x.",
            show_default="all of them",
        ),
    ] = None,
    length: Annotated[int, typer.Option(help="Positions, for --budget and --count.", min=1)] = 512,
    attention: Annotated[str, typer.Option(help="An attention of `primal list`.")] = "primal",
    rank: Annotated[
        int | None,
        typer.Option(help="Directions s of a layer.", show_default="32, or half a head's width"),
    ] = None,
    feature_map: Annotated[
        str | None, typer.Option(help="Of primal attention.", show_default="that of the layer")
    ] = None,
    extend_positions: Annotated[
        int | None,
        typer.Option(help="Stretch learned positions to so many, first.", show_default="as it is"),
    ] = None,
    layerwise: Annotated[
        int, typer.Option(help="Steps of each layer against its original, first.", min=0)
    ] = 300,
    steps: Annotated[
        int, typer.Option(help="Steps of the whole model against the original.", min=0)
    ] = 500,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-4,
    converted: Annotated[
        float, typer.Option(help="Learning rate of the converted layers, in multiples of --lr.")
    ] = 1.0,
    every: Annotated[int, typer.Option(help="Steps between evaluations.", min=1)] = 50,
    patience: Annotated[
        int, typer.Option(help="Evaluations without a better one, then it stops.", min=1)
    ] = 5,
    one_by_one: Annotated[
        bool,
        typer.Option("--one-by-one", help="Convert the last, then the one before, and so on."),
    ] = False,
    task: Annotated[
        float, typer.Option(help="Weight of the model's own loss, if the inputs have labels.")
    ] = 0.0,
    batch_size: Annotated[int, typer.Option(help="Samples in a step.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    model_class: Annotated[
        str | None,
        typer.Option("--class", help="A class of transformers.", show_default="from config.json"),
    ] = None,
    speed: Annotated[
        bool, typer.Option(help="Time and memory against length, measured for the page.")
    ] = True,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Convert a model, train it to do what it did, without labels. Started again, it continues."""
    _expect_place(out)
    if quiet:  # transformers reads them when it is imported, in processes of its own too
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from rich.console import Console

    from ..bench.lengths import lengths_of, paces
    from ..convert.opening import copy_companions, open_model, parse_layers, read_batches
    from ..convert.positions import extend_positions_
    from ..convert.publishing import save_pretrained
    from ..report.adaptation import write_adaptation
    from ..train.adapt import AdaptSettings, adapt_
    from .progress import Display
    from .show import show_json

    options: dict[str, Any] = {"rank": rank, "feature_map": feature_map}
    options = {name: value for name, value in options.items() if value is not None}
    if attention != "primal":
        options["attention"] = attention
    settings = AdaptSettings(
        layerwise=layerwise,
        steps=steps,
        lr=lr,
        converted=converted,
        every=every,
        patience=patience,
        one_by_one=one_by_one,
        task=task,
        seed=seed,
    )
    opened, _ = open_model(model, model_class)
    if extend_positions is not None:
        extend_positions_(opened, extend_positions)
    inputs = read_batches(batches, batch_size)
    if len(inputs) < 2:
        raise ValueError(
            f"{batches} makes {len(inputs)} batch of --batch-size {batch_size}; expected two or "
            "more, of which every tenth is held out"
        )
    with Display(Console(stderr=True), quiet=quiet) as display:

        def tell(step: int, steps: int, text: str) -> None:
            display.draw(step, steps, "adapting", text)
            display.say_seldom(f"step {step} of {steps}: {text}", at_once=step in (0, steps))

        found = adapt_(
            opened, inputs, layers=parse_layers(layers), count=count, budget=budget, length=length,
            settings=settings, folder=out, tell=tell, **options,
        )  # fmt: skip
        save_pretrained(opened, out, figures=_figures(found))
        if Path(model).exists():
            copy_companions(model, out)
        measured: list[Pace] = []
        if speed and "input_ids" in inputs[0]:
            display.say("time and memory against length")
            measured = paces(
                model, str(out), str(batches), lengths_of(opened),
                class_name=model_class, extended=extend_positions,
            )  # fmt: skip
    command = shlex.join(["primal", *sys.argv[1:]])
    title = f"{model}, adapted"
    page = write_adaptation(
        found, out / "report.html", command=command, title=title, paces=measured
    )
    if as_json:
        shown = {name: dataclasses.asdict(getattr(found, name)) for name in ("before", "after")}
        show_json({**shown, "best": found.best, "ended": found.ended, "page": str(page)})
    else:
        _show(found, out, page)


def _expect_place(out: Path) -> None:
    """Nothing is written over what is no adaptation, such as the model itself."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected a folder")
    known = ("checkpoints", "chosen.json", "report.html")
    if out.exists() and any(out.iterdir()) and not any((out / name).exists() for name in known):
        raise UsageError(
            f"{out} holds something else than an adaptation; expected a new folder, or that of an "
            "adaptation to continue"
        )


def _figures(found: Adaptation) -> dict[str, str]:
    """Lines for the model card."""
    return {
        "agreement with the original on held-out inputs": f"{found.after.agreement:.4f} "
        f"({found.before.agreement:.4f} before training)",
        "distance of the outputs": f"{found.after.outputs:.4f} ({found.before.outputs:.4f} before)",
    }


def _show(found: Adaptation, out: Path, page: Path) -> None:
    from .show import show_rows

    show_rows(
        {
            "attentions": str(len(found.layers)),
            "agreement": f"{found.before.agreement:.4f} -> {found.after.agreement:.4f}",
            "loss": f"{found.before.loss:.4f} -> {found.after.loss:.4f}",
            "weights of step": f"{found.best}; {found.ended}",
            "folder": str(out),
            "page": str(page),
            "next": f'model = primal_attention.from_pretrained("{out}")',
        }
    )
