"""The sub-commands of `primal`. What needs torch is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..grammar import parse_attention, parse_options, parse_seeds
from ..version import __version__
from .bench import EPILOG as BENCH_EPILOG
from .bench import bench
from .convert import EPILOG as CONVERT_EPILOG
from .convert import convert
from .cost import cost
from .data import data_app
from .learn import EPILOG as LEARN_EPILOG
from .learn import learn
from .options import (
    USUAL_ATTENTION,
    AsJson,
    DataDir,
    Layers,
    Option,
    Protocol,
    Quiet,
    Recipe,
    config_options,
    given,
    usual_attention,
)
from .report import EPILOG as REPORT_EPILOG
from .report import report
from .reproduce import EPILOG as REPRODUCE_EPILOG
from .reproduce import reproduce
from .rl import COLLECTION, collect
from .settings import UsageError, resolve
from .spectrum import spectrum
from .sweep import EPILOG as SWEEP_EPILOG
from .sweep import sweep

app = typer.Typer(
    name="primal",
    help="Primal-Attention: train models with linear attention and know how good they are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"primal-attention {__version__}")
        raise typer.Exit


@app.callback()
def primal(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Example: primal train uea/JapaneseVowels --attention softmax,primal --seeds 0-4"
)
@config_options
def train(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task, such as uea/JapaneseVowels.")
    ],
    *,
    attention: Annotated[
        str | None,
        typer.Option(
            help="One name for all layers, or one for each: softmax,primal or softmax*11,primal.",
            show_default=USUAL_ATTENTION,
        ),
    ] = None,
    layers: Layers = None,
    option: Option = None,
    recipe: Recipe = None,
    protocol: Protocol = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="0")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds, 0-4 or 0,3,7: mean and interval.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    name: Annotated[
        str | None, typer.Option(help="Name of the run folder.", show_default="task and attention")
    ] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train a model. Every run has a folder: settings, metrics, checkpoints, result, pictures."""
    from .runs import new_run

    if seed is not None and seeds is not None:
        raise UsageError("--seed and --seeds are both given; expected one of them")
    try:
        chosen = None if seeds is None else parse_seeds(seeds)
        names = parse_attention(usual_attention(task) if attention is None else attention, layers)
        settings = given(options)
        if option:
            settings["options"] = parse_options(option)
    except ValueError as error:
        raise UsageError(str(error)) from error
    settings["seed"] = seed or 0
    if protocol is not None:
        settings["protocol"] = protocol
    if data_dir is not None:
        settings["data_dir"] = str(data_dir.absolute())
    config = resolve(task, names, recipe, **settings)
    new_run(config, chosen, root=out, name=name, quiet=quiet, as_json=as_json)


@app.command()
def resume(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", exists=True, file_okay=False, help="The folder of a run, or of seeds."
        ),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was interrupted or killed; it ends as if it had never stopped."""
    from .runs import old_run

    old_run(run, quiet=quiet, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Attentions, tasks and recipes."""
    from ..attention import attention_info, available_attentions
    from ..tasks import available_tasks, get_task
    from .show import list_json, show_json, show_list

    attentions = [attention_info(name) for name in available_attentions()]
    tasks = [get_task(name) for name in available_tasks()]
    show_json(list_json(attentions, tasks)) if as_json else show_list(attentions, tasks)


app.command(epilog=BENCH_EPILOG)(bench)
app.command(epilog=CONVERT_EPILOG)(convert)
app.command()(cost)
app.command(epilog=LEARN_EPILOG)(learn)
app.command()(spectrum)
app.command(epilog=REPORT_EPILOG)(report)
app.command(epilog=REPRODUCE_EPILOG)(reproduce)
app.command(epilog=SWEEP_EPILOG)(sweep)
data_app.command(epilog=COLLECTION)(collect)
app.add_typer(data_app, name="data")
