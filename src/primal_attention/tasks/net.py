"""The settings with which the net for time series is trained: one recipe for every set."""

from __future__ import annotations

import math
from typing import Any

# chosen by cross-validation inside training sets
NET: dict[str, Any] = {
    "model": "net",
    "norm": "pre",
    "weights": "tied",
    "feature_map": "softmax",
    "rank": 8,
    "eta": 0.1,
    "width": 64,
    "heads": 4,
    "feedforward": 128,
    "dropout": 0.2,
    "optimizer": "adamw",
    "lr": 2e-3,
    "weight_decay": 0.01,
    "schedule": "cosine",
    "warmup_steps": 40,
    "batch_size": 16,
    "label_smoothing": 0.1,
    "clip": 4.0,
    "keep": "last",
}
STEPS = 400  # at least
EPOCHS = 6  # at least
HELD_OUT = 0.2


def net_settings(cases: int) -> dict[str, Any]:
    """The recipe for so many training cases, of which HELD_OUT are for validation: at least STEPS
    steps and EPOCHS epochs."""
    trained = cases - round(HELD_OUT * cases)
    steps = math.ceil(trained / NET["batch_size"])
    return NET | {
        "validation_fraction": HELD_OUT,
        "epochs": max(EPOCHS, math.ceil(STEPS / steps)),
    }
