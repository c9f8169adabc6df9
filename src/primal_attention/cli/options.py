"""The options of `primal train`: one for every setting of a run, in panels, with help."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from ..train.config import KINDS, RunConfig, help_of, kind_of, option_of, panels

# options that several commands have
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="Folder with data sets.",
        show_default="from the variable PRIMAL_ATTENTION_DATA",
    ),
]
Log = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Also log to: tensorboard, wandb, or both."),
]
Width = Annotated[int, typer.Option(help="Width of the model.")]
Heads = Annotated[int, typer.Option(help="Attention heads of a layer.")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ATTENTION.NAME=VALUE",
        help="An option of an attention (primal list names them); may be repeated.",
    ),
]
Layers = Annotated[
    int | None, typer.Option(help="Number of layers.", show_default="2, or as named")
]
Recipe = Annotated[
    str | None, typer.Option(help=help_of(RunConfig, "recipe"), show_default="default")
]
Protocol = Annotated[
    str | None, typer.Option(help=help_of(RunConfig, "protocol"), show_default="holdout")
]

USUAL_ATTENTION = "primal; for rl/... softmax,softmax,primal"

F = TypeVar("F", bound=Callable[..., None])


def config_options(command: F) -> F:
    """Give a command that takes **options one option for each setting that stands in a panel; an
    option that is not on the command line is None."""
    own = inspect.signature(command, eval_str=True)
    hints = _hints()
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for panel, fields in panels(*KINDS).items():
        for name, field in fields.items():
            kind, optional = kind_of(hints[name])
            word = option_of(field)
            # the recipe says what is computed, not where
            default: Any = str(field.default) if panel == "Machine" else "from recipe"
            default = False if panel == "Data" else default
            shown: dict[str, Any] = {"show_default": default, "metavar": f"<{kind.__name__}>"}
            option = typer.Option(
                f"{word}/--no-{word[2:]}" if kind is bool else word,
                help=field.metadata["help"],
                rich_help_panel=panel,
                **({"show_default": False} if kind is bool else shown),
            )
            annotation = Annotated[(str if optional else kind) | None, option]  # type: ignore[valid-type]
            parameters.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                )
            )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that stand on the command line, as values of settings. A flag turns round what
    is the default."""
    hints = _hints()
    fields = {name: field for panel in panels(*KINDS).values() for name, field in panel.items()}
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        kind, optional = kind_of(hints[name])
        if kind is bool:
            found[name] = fields[name].default is not value
        else:
            found[name] = _number_or_none(name, value, kind) if optional else value
    return found


def _hints() -> dict[str, Any]:
    """The types of all settings; of several kinds that share one, the first one's."""
    return {name: t for kind in reversed(KINDS) for name, t in typing.get_type_hints(kind).items()}


def _number_or_none(name: str, text: str, kind: type) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return cast(float, kind(text))
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise ValueError(
            f"--{name.replace('_', '-')} is {text!r}; expected {expected} or none"
        ) from None
