"""What a sweep varies: "rank=20,30,40" lists values, "lr=1e-4:1e-2:log" is a range to search,
"performer.features=64,128" an option of an attention."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...grammar import parse_value, split_commas
from ...names import unknown
from ..config import EngineConfig, RunConfig, kind_of

# what the sweep itself decides, or what does not change a result
NOT_SWEPT = {
    "task", "seed", "options", "attention", "recipe", "protocol",
    "data_dir", "devices", "nodes", "accelerator", "checkpoint_seconds",
}  # fmt: skip


_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; with `log` evenly spread in their logarithm."""

    low: float
    high: float
    log: bool = False


C = TypeVar("C", bound=EngineConfig)
Space = Mapping[str, tuple[Any, ...] | Range]


def parse_space(
    words: Sequence[str], kind_of_run: type[EngineConfig] = RunConfig
) -> dict[str, tuple[Any, ...] | Range]:
    """Settings as on the command line, each `name=value,value,...` or `name=low:high[:log]`."""
    space: dict[str, tuple[Any, ...] | Range] = {}
    hints = typing.get_type_hints(kind_of_run)
    known = sorted(hints.keys() - NOT_SWEPT)
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text:
            raise ValueError(f"the setting is {word!r}; expected name=value,value,...")
        name = name.strip().replace("-", "_")
        if re.fullmatch(r"\w+\.\w+", name) and name not in space:
            space[name] = _parse(name, text, object, False)
            continue
        if name not in known:
            raise ValueError(unknown("setting", name, known))
        if name in space:
            raise ValueError(f"{name} is given twice; expected it once")
        space[name] = _parse(name, text, *kind_of(hints[name]))
    return space


def grid(space: Space) -> list[dict[str, Any]]:
    """Every combination of the listed values, the last name varying fastest."""
    for name, values in space.items():
        if isinstance(values, Range):
            raise ValueError(
                f"{name} is a range; expected a list of values, or a search with --search N"
            )
    lists = typing.cast("list[tuple[Any, ...]]", list(space.values()))
    return [dict(zip(space, point, strict=True)) for point in itertools.product(*lists)]


def varied(space: Space) -> list[str]:
    """The names with more than one value."""
    return [n for n, values in space.items() if isinstance(values, Range) or len(values) > 1]


def trials(base: C, points: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[C]:
    """The runs of a sweep: all points with the first seed, then with the second, and so on."""
    found = [_at(base, point, seed) for seed in seeds for point in points]
    for config in found:
        config.validate()
    return found


def value_at(config: EngineConfig, name: str) -> Any:
    """The value of a setting, or of an option of an attention, in a run."""
    attention, dot, option = name.partition(".")
    return config.options.get(attention, {}).get(option) if dot else getattr(config, name)


def _at(base: C, point: Mapping[str, Any], seed: int) -> C:
    """The run at a point."""
    options = {name: dict(own) for name, own in base.options.items()}
    for name in (name for name in point if "." in name):
        attention, _, option = name.partition(".")
        options.setdefault(attention, {})[option] = point[name]
    fields = {name: value for name, value in point.items() if "." not in name}
    return dataclasses.replace(base, **fields, options=options, seed=seed)


def _parse(name: str, text: str, kind: type, none: bool) -> tuple[Any, ...] | Range:
    if kind is not str and ":" in text:
        found = re.fullmatch(r"([^:]+):([^:]+)(:log)?", text)
        if found is None:
            raise ValueError(f"{name} is {text!r}; expected a range low:high or low:high:log")
        low, high = (_value(name, part, kind, False) for part in found.groups()[:2])
        if not all(isinstance(end, int | float) for end in (low, high)):
            raise ValueError(f"{name} is {text!r}; expected numbers low:high")
        if not low < high or (found[3] and low <= 0):
            raise ValueError(f"{name} is {text!r}; expected low < high, and 0 < low with log")
        return Range(low, high, found[3] is not None)
    values = tuple(_value(name, part, kind, none) for part in split_commas(text))
    if any(value in values[:i] for i, value in enumerate(values)):  # lists have no hash
        raise ValueError(f"{name} is {text!r}; expected each value once")
    return values


def _value(name: str, text: str, kind: type, none: bool) -> Any:
    text = text.strip()
    if none and text.lower() == "none":
        return None
    if kind is object:
        return parse_value(text)
    try:
        return _BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        expected = {int: "an integer", float: "a number", bool: "true or false"}.get(kind, "a word")
        raise ValueError(f"{name} is {text!r}; expected {expected}") from None
