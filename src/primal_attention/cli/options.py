"""The options of `primal train`: one for every field of RunConfig, in panels, with help."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from ..train.config import RunConfig

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
Recipe = Annotated[str, typer.Option(help="Settings to start from: default or paper.")]
Protocol = Annotated[
    str,
    typer.Option(
        help="holdout: choose the epoch on a validation split, use the test set once. "
        "paper: report the best test epoch."
    ),
]

USUAL_ATTENTION = "primal; for rl/... softmax,softmax,primal"


def usual_attention(task: str) -> str:
    """The attention of a command that names none."""
    return "softmax,softmax,primal" if task.startswith("rl/") else "primal"


F = TypeVar("F", bound=Callable[..., None])

# panel: field: help; the fields that `train` itself declares are missing here
PANELS: dict[str, dict[str, str]] = {
    "Attention": {
        "weights": "Weights of primal attention: data, free or tied.",
        "rank": "Number s of singular directions of a primal layer.",
        "rank_multi": "Anchors of data weights: rank times this many rows of the sequence.",
        "anchor_rule": "How anchors are taken from a sequence: sample or mean.",
        "eta": "Weight of the KSVD loss.",
    },
    "Model": {
        "width": "Width of the model.",
        "heads": "Attention heads of a layer.",
        "feedforward": "Width of the feed-forward part of a layer.",
        "dropout": "Dropout.",
        "norm": "Layer norm after (post) or before (pre) each part of a layer.",
        "activation": "gelu or relu.",
        "positions": "learned, sinusoidal or none.",
        "head": "Class scores from the mean over positions (mean, mlp) or from all (flatten).",
        "normalise": "Statistics of the training set: per channel (channel) or none.",
        "max_length": "Longer sequences are cut to it; none = the longest for training.",
    },
    "Training": {
        "epochs": "Passes over the training set, each followed by an evaluation.",
        "epoch_steps": "Steps of an epoch; none = one pass over the training set.",
        "batch_size": "Series in a batch.",
        "batching": "random cases, of similar length (bucket), or all padded to one (fixed).",
        "optimizer": "radam, adam or adamw.",
        "lr": "Learning rate.",
        "weight_decay": "Weight decay.",
        "clip": "Clip the gradient's norm at this value; none = never.",
        "label_smoothing": "Share of the target spread over all classes.",
        "augment": "Random changes of images: none, light or deit.",
        "mixup": "Mix images: parameter of the beta distribution, 0 = off.",
        "ema": "Evaluate averages of the weights over the steps, e.g. 0.999; none = off.",
        "schedule": "Learning rate over time: constant, cosine or linear.",
        "warmup_steps": "Steps over which the learning rate rises from zero.",
        "validation_fraction": "Part of the training set held out (protocol holdout).",
    },
    "Machine": {
        "precision": "32-true, bf16-mixed, 64-true, ...",
        "devices": "Devices (processes) on each node.",
        "nodes": "Nodes.",
        "accelerator": "auto, cpu, cuda, ...",
        "checkpoint_seconds": "Time between checkpoints.",
    },
}


def spelled(field: str) -> str:
    """The option of a setting; where to compute is the device, as everywhere."""
    return "--device" if field == "accelerator" else f"--{field.replace('_', '-')}"


def config_options(command: F) -> F:
    """Give a command that takes **options one option for each field in PANELS; an option that is
    not on the command line is None."""
    own = inspect.signature(command, eval_str=True)
    hints, defaults = typing.get_type_hints(RunConfig), _defaults()
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for panel, fields in PANELS.items():
        shown = panel != "Machine"  # the recipe says what is computed, not where
        for name, text in fields.items():
            option = typer.Option(
                spelled(name),
                help=text,
                show_default="from recipe" if shown else str(defaults[name]),
                rich_help_panel=panel,
                metavar=f"<{_plain(hints[name]).__name__}>",
            )
            kind = str if _optional(hints[name]) else _plain(hints[name])
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[kind | None, option],
                )
            )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that stand on the command line, as values of RunConfig's fields."""
    hints = typing.get_type_hints(RunConfig)
    return {
        name: _number_or_none(name, value, _plain(hints[name])) if _optional(hints[name]) else value
        for name, value in options.items()
        if value is not None
    }


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(RunConfig)}


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
        raise ValueError(f"{spelled(name)} is {text!r}; expected {expected} or none") from None
