"""From a command line to a RunConfig and back."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer import TyperException

from ..grammar import show_options
from ..train.config import RunConfig
from .options import spelled


class UsageError(TyperException):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


@contextmanager
def usage() -> Iterator[None]:
    """What is wrong inside a `with` is wrong with the command line."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def resolve(
    task: str, attention: tuple[str, ...], recipe: str = "default", **given: Any
) -> RunConfig:
    """The settings of a run: RunConfig's defaults, then the recipe's, then those given."""
    from ..attention import attention_info
    from ..tasks import get_task

    with usage():
        for name in attention:
            attention_info(name)
        fields = get_task(task).recipe(recipe, attention)
        fields |= {"task": task, "recipe": recipe, "attention": attention} | given
        config = RunConfig.from_dict(fields)
        config.validate()
    return config


def command_for(
    config: RunConfig, attention: tuple[str, ...] | None = None, /, **changes: str
) -> str:
    """The command that trains with these settings, with another attention or with some options
    changed or added."""
    plain = resolve(config.task, config.attention, config.recipe)
    names = config.attention if attention is None else attention
    same = len(set(names)) == 1
    options = {"attention": names[0] if same else ",".join(names)}
    if same and len(names) != 2:  # two is what one name stands for
        options["layers"] = str(len(names))
    if config.recipe != "default":
        options["recipe"] = config.recipe
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        shown_apart = field.name in ("attention", "seed", "options")
        if not shown_apart and value != getattr(plain, field.name):
            options[field.name] = "none" if value is None else str(value)
    words = ["primal", "train", config.task]
    for text in show_options({n: own for n, own in config.options.items() if n in names}):
        words += ["--option", text]
    for name, text in (options | changes).items():
        words += [spelled(name), text]
    return shlex.join(words)
