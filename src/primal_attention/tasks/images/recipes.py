"""How to train on images: our defaults, and the recipe of DeiT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMMON: dict[str, Any] = {
    "norm": "pre",
    "positions": "learned",
    "activation": "gelu",
    "dropout": 0.0,
    "optimizer": "adamw",
    "weight_decay": 0.05,
    "schedule": "cosine",
    "validation_fraction": 0.1,
    "weights": "data",
    "anchor_rule": "sample",
    "rank_multi": 10,
    "eta": 0.05,
}
# Touvron et al., 2021. Its average of the weights forgets over 25,000 steps; ImageNet-100 has a
# tenth of the images and of the steps, so here it is over 2,500.
_DEIT: dict[str, Any] = {
    "lr": 1e-3,
    "batch_size": 1024,
    "epochs": 300,
    "warmup_steps": 600,  # 5 epochs of ImageNet-100
    "clip": None,
    "label_smoothing": 0.1,
    "augment": "deit",
    "mixup": 0.8,
    "ema": 0.9996,
}
_TINY: dict[str, Any] = {"width": 192, "heads": 3, "feedforward": 768, "rank": 32}
_SMALL: dict[str, Any] = {"width": 384, "heads": 6, "feedforward": 1536, "rank": 32}

DIGITS: Mapping[str, Mapping[str, Any]] = {
    "default": _COMMON | {
        "width": 64, "heads": 4, "feedforward": 128, "rank": 8,
        "lr": 1e-3, "batch_size": 32, "epochs": 20, "warmup_steps": 100, "clip": 1.0,
        "label_smoothing": 0.1, "augment": "light",
    },
}  # fmt: skip
CIFAR10: Mapping[str, Mapping[str, Any]] = {
    "default": _COMMON | _TINY | {
        "lr": 1e-3, "batch_size": 128, "epochs": 30, "warmup_steps": 500, "clip": 1.0,
        "label_smoothing": 0.1, "augment": "light",
    },
    "deit": _COMMON | _TINY | _DEIT | {"batch_size": 256, "lr": 5e-4, "warmup_steps": 900},
}  # fmt: skip
FOLDER: Mapping[str, Mapping[str, Any]] = {
    "default": _COMMON | _SMALL | {
        "lr": 5e-4, "batch_size": 256, "epochs": 100, "warmup_steps": 2500, "clip": 1.0,
        "label_smoothing": 0.1, "augment": "light", "mixup": 0.2,
    },
    "deit": _COMMON | _SMALL | _DEIT,
}  # fmt: skip
