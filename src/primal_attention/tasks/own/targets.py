"""What targets are: classes or numbers, found out from the targets themselves, and said."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..base import DataError

MANY = 20  # whole numbers that differ; more of them, with few cases each, are no classes
CASES_A_CLASS = 5


def are_numbers(targets: Sequence[str]) -> bool:
    """Whether targets are numbers to be estimated: fractions, or very many whole ones."""
    values = [as_number(target) for target in targets]
    if any(math.isnan(value) for value in values):
        return False
    if any(not value.is_integer() for value in values):
        return True
    distinct = len(set(values))
    return distinct > MANY and len(values) < CASES_A_CLASS * distinct


def as_number(text: str) -> float:
    """NaN for what is none."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def classes_in(targets: Sequence[str], name: str) -> tuple[str, ...]:
    """The classes, numbers in their order, others by name."""
    found = sorted(set(targets))
    if not any(math.isnan(as_number(one)) for one in found):
        found.sort(key=as_number)
    if len(found) < 2:
        raise DataError(f"{name} has the class {found[0]!r} alone; expected two or more")
    if max(Counter(targets).values()) == 1:
        raise DataError(
            f"{name} has {len(found)} classes with one case each; expected a class with several"
        )
    return tuple(found)


def described(targets: Sequence[str]) -> str:
    """What was found, in words: "3 classes (the largest has 40.0 %)"."""
    if are_numbers(targets):
        values = [as_number(target) for target in targets]
        return f"numbers from {min(values):.4g} to {max(values):.4g}, so a regression"
    counts = Counter(targets)
    largest = 100 * max(counts.values()) / len(targets)
    return f"{len(counts)} classes (the largest has {largest:.1f} %), so a classification"
