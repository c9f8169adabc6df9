"""Parameters of estimators as plain values, checked."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

SEEDS = 2**32


def plain(value: Any) -> Any:
    """A number of numpy's, as a grid has it, as one of Python's; those of a mapping too."""
    if isinstance(value, Mapping):
        return {name: plain(own) for name, own in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def seed_of(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS, dtype=np.int64))
    if isinstance(random_state, Integral) and 0 <= int(random_state) < SEEDS:
        return int(random_state)
    raise ValueError(
        f"random_state is {random_state!r}; expected an integer from 0 to 2**32 - 1, a numpy "
        "RandomState, or None"
    )


def seeds_of(seed: int, count: int) -> list[int]:
    """Seeds of so many networks; the first one has the given seed."""
    return [seed, *np.random.SeedSequence(seed).generate_state(count - 1).tolist()]


def check_integer(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; expected an integer of at least {least}")
