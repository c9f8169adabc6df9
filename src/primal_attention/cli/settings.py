"""From a command line to the settings of a run and back."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer import TyperException

from ..grammar import parse_attention, show_options
from ..train.config import KINDS, EngineConfig, of_kind, option_of, settings_for


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
    task: str, attention: tuple[str, ...], recipe: str | None = None, **given: Any
) -> EngineConfig:
    """`settings_for`, where what is wrong is wrong with the command line."""
    from ..tasks import get_task

    with usage():
        kind = get_task(task).settings
        alone = {} if recipe is None or len(get_task(task).recipes) > 1 else {"recipe": recipe}
        _check_belongs(task, kind, given | alone)
        typed = {name: of_kind(kind, name, value) for name, value in given.items()}
        return settings_for(task, attention, recipe, **typed)


def resolve_words(
    task: str,
    attention: str | None,
    layers: int | None,
    recipe: str | None,
    protocol: str | None,
    data_dir: Path | None,
    **given: Any,
) -> EngineConfig:
    """`resolve` as commands spell it. Without an attention: that of the task's settings."""
    from ..tasks import get_task

    if protocol is not None:
        given["protocol"] = protocol
    if data_dir is not None:
        given["data_dir"] = str(data_dir.absolute())
    with usage():
        if attention is None:
            usual = get_task(task).settings(task=task).attention
            attention = usual[0] if len(set(usual)) == 1 else ",".join(usual)
        names = parse_attention(attention, layers)
    return resolve(task, names, recipe, **given)


def _check_belongs(task: str, kind: type[EngineConfig], given: dict[str, Any]) -> None:
    """Raise if a setting is one of other tasks only."""
    for name in given:
        homes = [other for other in KINDS if name in _names(other)]
        if homes and kind not in homes:
            option = option_of(next(f for f in dataclasses.fields(homes[0]) if f.name == name))
            raise ValueError(
                f"{option} is not for {task}; expected it with tasks like {homes[0].EXAMPLE}"
            )


def _names(kind: type[EngineConfig]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def command_for(
    config: EngineConfig, attention: tuple[str, ...] | None = None, /, **changes: str
) -> str:
    """The command that trains with these settings, with another attention or with some options
    changed or added."""
    recipe = getattr(config, "recipe", None)
    plain = resolve(config.task, config.attention, recipe, **config.where())
    names = config.attention if attention is None else attention
    same = len(set(names)) == 1
    words = ["primal", "train", config.task]
    for text in show_options({n: own for n, own in config.options.items() if n in names}):
        words += ["--option", text]
    options = {f"--{name}": str(value) for name, value in config.where().items()}
    options["--attention"] = names[0] if same else ",".join(names)
    if same and len(names) != 2:  # two is what one name stands for
        options["--layers"] = str(len(names))
    if recipe not in (None, "default"):
        options["--recipe"] = recipe
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        shown_apart = field.name in ("attention", "seed", "options")
        if not shown_apart and value != getattr(plain, field.name):
            flag = isinstance(value, bool)
            options[option_of(field)] = "" if flag else "none" if value is None else str(value)
    options |= {f"--{name.replace('_', '-')}": text for name, text in changes.items()}
    return shlex.join([*words, *(word for pair in options.items() for word in pair if word)])
