"""The parameters of the classifier as the settings of a run, checked."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from ...grammar import read_options
from ...names import check_choice
from ..config import CHOICES, RunConfig

SHARED = (
    "weights", "feature_map", "rank", "rank_multi", "anchor_rule", "eta", "width", "heads",
    "feedforward", "dropout", "normalise", "optimizer", "lr", "batch_size", "epochs", "clip",
    "validation_fraction",
)  # fmt: skip
SEEDS = 2**32


def run_config(parameters: Mapping[str, Any]) -> RunConfig:
    """The settings; a ValueError names the first wrong parameter and what was expected."""
    given = {name: plain(value) for name, value in parameters.items()}
    shared = {name: given[name] for name in SHARED}
    config = RunConfig(
        task="series",
        seed=seed_of(given["random_state"]),
        attention=_attention(given),
        accelerator=given["device"],
        options=read_options(given["options"]),
        **shared,
    )
    check_choice("device", given["device"], CHOICES["accelerator"])
    config.check_settings()
    if not isinstance(given["early_stopping"], bool):
        raise ValueError(f"early_stopping is {given['early_stopping']!r}; expected True or False")
    check_integer("patience", given["patience"], 1)
    verbose = given["verbose"]
    check_integer("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0)
    return config


def plain(value: Any) -> Any:
    """A number of numpy's, as a grid has it, as one of Python's; those of a mapping too."""
    if isinstance(value, Mapping):
        return {name: plain(own) for name, own in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _attention(given: Mapping[str, Any]) -> tuple[str, ...]:
    attention = given["attention"]
    if isinstance(attention, str):
        check_integer("layers", given["layers"], 1)
        return (attention,) * int(given["layers"])
    try:
        return tuple(map(str, attention))
    except TypeError:
        raise ValueError(
            f"attention is {attention!r}; expected a name or one name per layer"
        ) from None


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


def check_integer(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; expected an integer of at least {least}")
