"""The settings of runs: those that every run has, the kinds that tasks bring, and what they say of
themselves: type, panel and line of help of each field."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runs.errors import RunError
from ..runs.files import read_object

# passed on, for those who train
from ..tasks.classification.settings import RunConfig as RunConfig
from ..tasks.events.settings import EventConfig as EventConfig
from ..tasks.language.settings import LanguageConfig as LanguageConfig
from ..tasks.own.settings import OwnConfig as OwnConfig
from ..tasks.rl.settings import DecisionConfig as DecisionConfig
from ..tasks.settings import PLACE_FIELDS as PLACE_FIELDS
from ..tasks.settings import EngineConfig as EngineConfig
from ..tasks.settings import digest as digest
from ..tasks.table.settings import TableConfig as TableConfig

KINDS: tuple[type[EngineConfig], ...] = (
    RunConfig,
    OwnConfig,
    DecisionConfig,
    EventConfig,
    LanguageConfig,
    TableConfig,
)  # that `--help` shows
CHOICES = RunConfig.CHOICES


def config_of(values: Mapping[str, Any]) -> EngineConfig:
    """Settings from what `to_dict` made of them; the task says of which kind they are."""
    from ..tasks import get_task

    if not isinstance(task := values.get("task"), str):
        return RunConfig.from_dict(values)  # says what is wrong
    return get_task(task).settings.from_dict(values)


def config_in(path: Path) -> EngineConfig:
    """The settings in a JSON file, valid ones; a RunError says what is wrong with them."""
    return valid_config(read_object(path), path)


def valid_config(stored: Any, path: Path) -> EngineConfig:
    """Those that were read from a file."""
    if not isinstance(stored, dict):
        raise RunError(f"{path} has the settings {stored!r}; expected a JSON object")
    try:
        config = config_of(stored)
        config.validate()
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    return config


def settings_for(
    task: str, attention: tuple[str, ...] | None = None, recipe: str | None = None, **given: Any
) -> EngineConfig:
    """The settings of a run, checked: the defaults of the task's settings, then the recipe's, then
    those given. With `data=` the task may be "": it is found out.

    settings_for("uea/JapaneseVowels", ("softmax", "primal"), seed=1)
    settings_for("", data="sensors.csv", target="state", id="machine", time="at")
    """
    from ..attention import attention_info
    from ..tasks import get_task
    from ..tasks.own import task_of

    task = get_task(task).found(given)[0] if task else task_of(given)[0]
    found = get_task(task)
    kind = found.settings
    attention = kind(task=task).attention if attention is None else attention
    for name in attention:
        attention_info(name)
    found = found.bound(kind.from_dict({"task": task, **given}))
    fields = found.recipe(recipe or "default", attention)
    if "recipe" in _fields(kind):
        fields["recipe"] = recipe or "default"
    config = kind.from_dict(fields | {"task": task, "attention": attention} | given)
    if "ksvd_growth" not in fields | given:
        config = dataclasses.replace(config, ksvd_growth=_growth_for(config))
    config.validate()
    return config


def _growth_for(config: EngineConfig) -> str:
    """Of the KSVD loss of a new run: with positive features it begins at 1e5 to 1e8, and would take
    the first steps for itself. Several processes share no logarithm."""
    large = config.eta and "primal" in config.attention and config.feature_map != "cosine"
    return "log" if large and config.devices * config.nodes == 1 else config.ksvd_growth


def help_of(kind: type[EngineConfig], name: str) -> str:
    """The line of help of a setting: `help_of(RunConfig, "rank")`."""
    return str(_fields(kind)[name].metadata["help"])


def option_of(field: dataclasses.Field[Any]) -> str:
    """The option of a setting on the command line."""
    return field.metadata.get("flag") or f"--{field.name.replace('_', '-')}"


def panels(*kinds: type[EngineConfig]) -> dict[str, dict[str, dataclasses.Field[object]]]:
    """The fields that stand in panels of `--help`, by panel and name; of several kinds of settings
    that share a field, the first one's."""
    found: dict[str, dict[str, dataclasses.Field[object]]] = {}
    seen: set[str] = set()
    for kind in kinds:
        for name, field in _fields(kind).items():
            if name not in seen and (panel := field.metadata.get("panel")):
                found.setdefault(panel, {})[name] = field
                seen.add(name)
    return found


def kind_of(hint: Any) -> tuple[type, bool]:
    """float and True of `float | None`, float and False of `float`."""
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    optional = isinstance(hint, types.UnionType)
    return typing.cast(type, parts[0] if optional else hint), optional


def of_kind(kind: type[EngineConfig], name: str, value: Any) -> Any:
    """A value that was written as text, as a setting of this kind has it."""
    if not isinstance(value, str) or name not in _fields(kind):
        return value
    wanted, _ = kind_of(typing.get_type_hints(kind)[name])
    if wanted not in (int, float):
        return value
    try:
        return wanted(value)
    except ValueError:
        expected = "an integer" if wanted is int else "a number"
        option = option_of(_fields(kind)[name])
        raise ValueError(f"{option} is {value!r}; expected {expected} or none") from None


def _fields(kind: type[EngineConfig]) -> dict[str, dataclasses.Field[object]]:
    return {field.name: field for field in dataclasses.fields(kind)}
