"""One spelling for users: of options, layers, lengths, seeds, times and sizes, wherever they stand.

performer.features=8           an option of an attention
softmax*11,primal              the attentions of layers, one name for all or one for each
512:65536:x2, 1k:1M, 512,4k    lengths
0-4, 0,3,7                     seeds
90s, 30m, 8h                   times
16G                            memory
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

Options = dict[str, dict[str, Any]]  # {attention: {option: value}}, as RunConfig has them

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_COUNTS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_LENGTHS = "a range such as 512:65536:x2 or 1k:1M, or numbers of at least 1 that rise: 512,4k"


def parse_value(text: str) -> Any:
    """true, false, none or null, a number, a list; otherwise a word."""
    words = {"true": True, "false": False, "none": None}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def show_value(value: Any) -> str:
    """The inverse of `parse_value`."""
    return value if isinstance(value, str) else json.dumps(value)


def split_commas(text: str) -> list[str]:
    """The parts between commas; those inside of a list, as in `grid=[8,8]`, divide nothing."""
    return re.split(r",(?![^\[\]]*\])", text)


def parse_options(texts: Iterable[str]) -> Options:
    """Options of attentions by attention, each `performer.features=128`."""
    found: Options = {}
    for text in texts:
        parts = re.fullmatch(r"(\w+)\.(\w+)=(.+)", text)
        if parts is None:
            raise ValueError(f"--option is {text!r}; expected attention.name=value")
        name, option, value = parts.groups()
        if option in found.setdefault(name, {}):
            raise ValueError(f"--option {name}.{option} is given twice; expected it once")
        found[name][option] = parse_value(value)
    return found


def show_options(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The inverse of `parse_options`."""
    return [f"{a}.{o}={show_value(v)}" for a, own in options.items() for o, v in own.items()]


def read_options(given: Any) -> Options:
    """Options from a mapping, `{"performer.features": 128}` or `{"performer": {"features": 128}}`;
    None is none."""
    if not isinstance(given, Mapping | None):
        raise ValueError(f"options is {given!r}; expected such as {{'performer.features': 128}}")
    found: Options = {}
    for key, value in (given or {}).items():
        name, dot, option = str(key).partition(".")
        own = {option: value} if dot else value
        if not isinstance(own, Mapping) or not name or (dot and not option):
            raise ValueError(
                f"options has {key!r}: {value!r}; expected such as 'performer.features': 128"
            )
        found[name] = found.get(name, {}) | dict(own)
    return found


def parse_attention(text: str, layers: int | None) -> tuple[str, ...]:
    """One name per layer: `primal` for all layers (two unless told), or `softmax,primal`, or with
    repetitions `softmax*11,primal`; a plus is as good as a comma."""
    names: tuple[str, ...] = ()
    for part in re.split(r"[,+]", text):
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


def parse_lengths(text: str) -> tuple[int, ...]:
    """`first:last:xK` is first, first * K, ... up to last; `first:last` takes steps of ten and ends
    with last; otherwise numbers that rise. A thousand is 1k, a million 1M."""
    found = re.fullmatch(r"([^:]+):([^:]+?)(?::x(\d+))?", text.strip())
    numbers = [_count(part) for part in (found.groups()[:2] if found else text.split(","))]
    if found and numbers[0] <= numbers[1] and (factor := int(found[3] or 10)) > 1:
        first, last = numbers
        numbers = []
        while 0 < first <= last:
            numbers.append(first)
            first *= factor
        numbers += [last] if found[3] is None and numbers[-1:] != [last] else []
    elif found:
        numbers = []
    if not numbers or numbers[0] < 1 or any(a >= b for a, b in pairwise(numbers)):
        raise ValueError(f"lengths is {text!r}; expected {_LENGTHS}")
    return tuple(numbers)


def show_lengths(lengths: Sequence[int]) -> str:
    """The shortest text that `parse_lengths` turns into these lengths."""
    if len(lengths) > 2:
        text = f"{lengths[0]}:{lengths[-1]}:x{lengths[1] // lengths[0]}"
        if lengths[1] // lengths[0] > 1 and parse_lengths(text) == tuple(lengths):
            return text
    return ",".join(map(str, lengths))


def parse_seeds(text: str) -> list[int]:
    """`0-4`, `0,3,7` or `0-2,7`."""
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


def parse_time(text: str) -> float:
    """Seconds of "90s", "30m", "1.5h" or "90"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if found is None:
        raise ValueError(f"the time is {text!r}; expected one like 90s, 30m or 8h")
    return float(found[1]) * _SECONDS[found[2]]


def parse_size(text: str) -> int:
    """Bytes: "16G" is 16 * 2^30."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])(?:i?b)?\s*", text, flags=re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no memory; expected a number such as 512M or 16G")
    return round(float(found[1]) * 1024.0 ** (1 + "kmgt".index(found[2].lower())))


def parse_count(text: str) -> int:
    """A number of things: 4096, "10M" is ten million, "1B" a thousand of them."""
    if (count := _count(text)) < 1:
        raise ValueError(f"{text!r} is no number; expected such as 4096, 10M or 1.5B")
    return count


def show_number(value: float, base: int = 1000) -> str:
    """ "1.2M"; three digits at most."""
    units = iter("kMGTP")
    unit = ""
    while value >= base and unit != "P":
        value, unit = value / base, next(units)
    return f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"


def _count(text: str) -> int:
    """4096, 1k or 1.5M; 0 for what is none."""
    found = re.fullmatch(r"\s*(?:(\d+)|(\d+(?:\.\d+)?)([kmgb]))\s*", text, flags=re.IGNORECASE)
    if found is None:
        return 0
    return int(found[1]) if found[1] else round(float(found[2]) * _COUNTS[found[3].lower()])
