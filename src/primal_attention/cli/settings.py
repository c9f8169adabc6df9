"""From a command line to a RunConfig and back."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from typer import TyperException

from ..train.config import RunConfig
from .options import show_options


class UsageError(TyperException):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


def resolve(
    task: str, attention: tuple[str, ...], recipe: str = "default", **given: Any
) -> RunConfig:
    """The settings of a run: RunConfig's defaults, then the recipe's, then those given."""
    from ..attention import attention_info
    from ..tasks import get_task

    try:
        for name in attention:
            attention_info(name)
        fields = get_task(task).recipe(recipe, attention)
        fields |= {"task": task, "recipe": recipe, "attention": attention} | given
        config = RunConfig.from_dict(fields)
        config.validate()
    except ValueError as error:
        raise UsageError(str(error)) from error
    return config


def command_for(config: RunConfig, **changes: str) -> str:
    """The command that trains with these settings, with some options changed or added."""
    plain = resolve(config.task, config.attention, config.recipe)
    same = len(set(config.attention)) == 1 and len(config.attention) == 2
    options = {"attention": config.attention[0] if same else ",".join(config.attention)}
    if config.recipe != "default":
        options["recipe"] = config.recipe
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        shown_apart = field.name in ("attention", "seed", "options")
        if not shown_apart and value != getattr(plain, field.name):
            options[field.name] = "none" if value is None else str(value)
    words = ["primal", "train", config.task]
    for text in show_options(config.options):
        words += ["--option", text]
    for name, text in (options | changes).items():
        words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)
