"""The parameters of the estimators as settings, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...grammar import read_options
from ...names import check_choice
from ...tasks.net import NET
from ..config import CHOICES, RunConfig
from .parameters import check_integer, plain, seed_of
from .rocket.model import Settings as RocketSettings
from .rocket.model import number_of_threads

SHARED = (
    "weights", "feature_map", "rank_multi", "anchor_rule", "eta", "width", "heads", "feedforward",
    "dropout", "optimizer", "lr", "weight_decay", "batch_size", "epochs", "clip",
    "validation_fraction", "uncertainty",
)  # fmt: skip
FIXED = ("model", "norm", "schedule", "warmup_steps", "label_smoothing")  # as the recipe has it
ENSEMBLES = ("fast", "net", "best")
NORMALISE = ("auto", "channel", "asinh", "none")


@dataclass(frozen=True)
class Settings:
    """What `PrimalFormerClassifier` and `PrimalFormerRegressor` are told, checked."""

    ensemble: str
    config: RunConfig  # of a network
    rocket: RocketSettings
    normalise: str
    steps: int
    networks: int
    folds: int
    patience: int | None  # None: no early stopping
    minutes: float | None
    workers: int
    device: str
    verbose: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Settings:
        """A ValueError names the first wrong parameter and what was expected."""
        given = {name: plain(value) for name, value in parameters.items()}
        check_choice("ensemble", given["ensemble"], ENSEMBLES)
        check_choice("normalise", given["normalise"], NORMALISE)
        config = _run_config(given)
        if not isinstance(given["early_stopping"], bool):
            raise ValueError(
                f"early_stopping is {given['early_stopping']!r}; expected True or False"
            )
        for name in ("patience", "steps", "groups", "networks"):
            check_integer(name, given[name], 1)
        check_integer("folds", given["folds"], 0)
        if given["folds"] == 1 or (given["folds"] == 0 and given["ensemble"] == "best"):
            raise ValueError(
                f"folds is {given['folds']}; expected at least 2, or with ensemble='net' 0 for "
                "networks that are not calibrated"
            )
        verbose, minutes = given["verbose"], given["max_minutes"]
        check_integer("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0)
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise ValueError(f"max_minutes is {minutes!r}; expected a positive number or None")
        return cls(
            given["ensemble"],
            config,
            RocketSettings(groups=given["groups"], seed=config.seed, threads=1),
            given["normalise"],
            given["steps"],
            given["networks"],
            given["folds"],
            given["patience"] if given["early_stopping"] else None,
            minutes,
            number_of_threads(given["n_jobs"]) or 1,
            given["device"],
            bool(verbose),
        )


def _run_config(given: Mapping[str, Any]) -> RunConfig:
    attention, rank = _attention(given), given["rank"]
    if rank is None and all(isinstance(given[name], int) for name in ("width", "heads")):
        rank = max(given["width"] // max(given["heads"], 1) // 2, 1)
    config = RunConfig(
        task="series",
        seed=seed_of(given["random_state"]),
        attention=attention,
        accelerator=given["device"],
        options=read_options(given["options"]),
        rank=rank,
        **{name: NET[name] for name in FIXED},
        **{name: given[name] for name in SHARED},
    )
    check_choice("device", given["device"], CHOICES["accelerator"])
    config.check_settings()
    return config


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
