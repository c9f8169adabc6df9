"""The options of `primal train`: one for every setting of a run, in panels, with help."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from ..train.config import KINDS, RunConfig
from ..train.fields import help_of, panels

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


def usual_attention(task: str) -> str:
    """The attention of a command that names none: that of the task's settings."""
    from ..tasks import get_task

    names = get_task(task).settings(task=task).attention
    return names[0] if len(set(names)) == 1 else ",".join(names)


def config_options(command: F) -> F:
    """Give a command that takes **options one option for each setting that stands in a panel; an
    option that is not on the command line is None."""
    own = inspect.signature(command, eval_str=True)
    hints = _hints()
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for panel, fields in panels(*KINDS).items():
        for name, field in fields.items():
            kind, word = (
                _plain(hints[name]),
                field.metadata["flag"] or f"--{name.replace('_', '-')}",
            )
            # the recipe says what is computed, not where
            default: Any = str(field.default) if panel == "Machine" else "from recipe"
            shown: dict[str, Any] = {"show_default": default, "metavar": f"<{kind.__name__}>"}
            option = typer.Option(
                f"{word}/--no-{word[2:]}" if kind is bool else word,
                help=field.metadata["help"],
                rich_help_panel=panel,
                **({"show_default": False} if kind is bool else shown),
            )
            annotation = Annotated[(str if _optional(hints[name]) else kind) | None, option]  # type: ignore[valid-type]
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
        if _plain(hints[name]) is bool:
            found[name] = fields[name].default is not value
        else:
            optional = _optional(hints[name])
            found[name] = _number_or_none(name, value, _plain(hints[name])) if optional else value
    return found


def parse_attention(text: str, layers: int | None) -> tuple[str, ...]:
    """One name per layer: `primal` for all layers (two unless told), or `softmax,primal`, or with
    repetitions `softmax*11,primal`."""
    names: tuple[str, ...] = ()
    for part in text.split(","):
        name, times, number = (word.strip() for word in part.partition("*"))
        if times and not re.fullmatch("[1-9][0-9]*", number):
            raise ValueError(f"--attention is {text!r}; expected names as in softmax*11,primal")
        names += (name,) * int(number or 1)
    if len(names) == 1:
        count = 2 if layers is None else layers
        if count < 1:
            raise ValueError(f"--layers is {count}; expected at least 1")
        return names * count
    if layers not in (None, len(names)):
        raise ValueError(
            f"--layers is {layers} but --attention names {len(names)} layers ({text}); expected "
            "one name, or one for each layer"
        )
    return names


def parse_options(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options of attentions as on the command line, `performer.features=128`, by attention. A value
    is read as JSON where it is JSON, and is a word otherwise."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        parts = re.fullmatch(r"(\w+)\.(\w+)=(.+)", text)
        if parts is None:
            raise ValueError(f"--option is {text!r}; expected attention.name=value")
        name, option, value = parts.groups()
        if option in found.setdefault(name, {}):
            raise ValueError(f"--option {name}.{option} is given twice; expected it once")
        try:
            found[name][option] = json.loads(value)
        except json.JSONDecodeError:
            found[name][option] = value
    return found


def show_options(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The inverse of `parse_options`."""
    return [
        f"{name}.{option}={value if isinstance(value, str) else json.dumps(value)}"
        for name, own in options.items()
        for option, value in own.items()
    ]


def parse_seeds(text: str) -> list[int]:
    """Seeds as on the command line: `0-4`, `0,3,7` or `0-2,7`."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise ValueError(f"--seeds is {text!r}; expected numbers as in 0-4 or 0,3,7")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds is {text!r}; expected each seed once")
    return seeds


def _hints() -> dict[str, Any]:
    """The types of all settings; of several kinds that share one, the first one's."""
    return {name: t for kind in reversed(KINDS) for name, t in typing.get_type_hints(kind).items()}


def _optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def _plain(hint: Any) -> type:
    """float of `float | None`."""
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return cast(type, parts[0] if _optional(hint) else hint)


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
