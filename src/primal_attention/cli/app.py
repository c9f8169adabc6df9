"""The sub-commands of `primal`. What needs torch is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..grammar import parse_options, parse_seeds
from ..version import __version__
from . import (
    adapt,
    bench,
    calibrate,
    convert,
    cost,
    explain,
    export,
    generate,
    learn,
    predict,
    report,
    reproduce,
    rl,
    serve,
    spectrum,
    sweep,
)
from .data import data_app
from .options import (
    USUAL_ATTENTION,
    AsJson,
    DataDir,
    Layers,
    Log,
    Option,
    Protocol,
    Quiet,
    Recipe,
    config_options,
    given,
)
from .settings import UsageError, resolve_words, usage

app = typer.Typer(
    name="primal",
    help="Primal-Attention: train models with linear attention and know how good they are.",
    no_args_is_help=True,
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
    epilog="Examples: primal train uea/JapaneseVowels --attention softmax,primal --seeds 0-4; "
    "primal train --data sensors.csv --target state --id machine --time at"
)
@config_options
def train(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="A task, such as uea/JapaneseVowels; not needed with --data."
        ),
    ] = None,
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
    log: Log = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train a model. Every run has a folder: settings, metrics, checkpoints, result, pictures."""
    from .runs import new_run

    if seed is not None and seeds is not None:
        raise UsageError("--seed and --seeds are both given; expected one of them")
    with usage():
        chosen = None if seeds is None else parse_seeds(seeds)
        settings = given(options)
        if option:
            settings["options"] = parse_options(option)
        task, said = _found(task, settings)
        if said and not quiet:
            typer.echo(said, err=True)
    config = resolve_words(
        task, attention, layers, recipe, protocol, data_dir, seed=seed or 0, **settings
    )
    new_run(config, chosen, root=out, name=name, log=log or "", quiet=quiet, as_json=as_json)


def _found(task: str | None, settings: dict[str, Any]) -> tuple[str, str]:
    """The task that is meant, and a sentence on what was found out."""
    from ..tasks import get_task
    from ..tasks.own import task_of

    return task_of(settings) if task is None else get_task(task).found(settings)


@app.command()
def resume(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", exists=True, file_okay=False, help="The folder of a run, or of seeds."
        ),
    ],
    log: Log = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was interrupted or killed; it ends as if it had never stopped."""
    from .runs import old_run

    old_run(run, log=log or "", quiet=quiet, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Attentions, tasks and recipes."""
    from ..attention import attention_info, available_attentions
    from ..tasks import available_tasks, get_task
    from .show import list_json, show_json, show_list

    attentions = [attention_info(name) for name in available_attentions()]
    tasks = [get_task(name) for name in available_tasks()]
    show_json(list_json(attentions, tasks)) if as_json else show_list(attentions, tasks)


COMMANDS = (
    predict,
    generate,
    export,
    serve,
    calibrate,
    explain,
    adapt,
    bench,
    convert,
    cost,
    learn,
    spectrum,
    report,
    reproduce,
    sweep,
)
for module in COMMANDS:
    name = module.__name__.rpartition(".")[2]  # that of its command, too
    app.command(epilog=getattr(module, "EPILOG", None))(getattr(module, name))
data_app.command(epilog=rl.EPILOG)(rl.collect)
app.add_typer(data_app, name="data")
