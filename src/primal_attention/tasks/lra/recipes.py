"""How to train on a task: our default, and the settings of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..recipes import Column


class Plan(NamedTuple):
    """How the paper trains: a linear warm-up, then a linear decay to zero at `steps`."""

    batch_size: int
    steps: int
    warmup_steps: int
    evaluations: int  # on the validation set, evenly spaced; a divisor of the steps
    primalformer: Column  # every layer primal
    primal_trans: Column  # the last layer primal


# fmt: off
PLANS: Mapping[str, Plan] = {
    "listops":    Plan(32, 5_000, 1_000, 20, Column(20, 0.1), Column(30, 0.05)),
    "text":       Plan(32, 20_000, 8_000, 20, Column(20, 0.05), Column(30, 0.1)),
    "retrieval":  Plan(32, 30_000, 800, 20, Column(30, 0.0), Column(20, 0.05)),
    "image":      Plan(256, 35_000, 175, 100, Column(30, 0.1), Column(30, 0.1)),
    "pathfinder": Plan(256, 62_400, 312, 100, Column(30, 0.1), Column(20, 0.05)),
}
# fmt: on


def recipes(name: str) -> dict[str, dict[str, Any]]:
    """The recipes of a task by name. "default" is the paper's, with batches of similar length and
    the usual rank and eta; in "paper" a batch is any cases, rank and eta are `tuned`, and the
    start, the pooled mean and the square of J are those of the published code."""
    plan = PLANS[name]
    paper = {
        "width": 64,
        "heads": 2,
        "feedforward": 128,
        "dropout": 0.1,
        "norm": "pre",
        "activation": "gelu",
        "positions": "learned",
        "head": "mlp",
        "normalise": "none",
        "optimizer": "adamw",
        "lr": 1e-4,
        "weight_decay": 0.0,
        "schedule": "linear",
        "warmup_steps": plan.warmup_steps,
        "batch_size": plan.batch_size,
        "batching": "random",
        "epochs": plan.evaluations,
        "epoch_steps": plan.steps // plan.evaluations,
        "clip": None,
        "weights": "data",
        "feature_map": "cosine",
        "anchor_rule": "sample",
        "rank_multi": 10,
    }
    published = {
        "batching": "fixed",  # what is pooled is divided by the padded length
        "pooled": "padded",
        "token_start": "small",
        "projection_start": "linear",
        "direction_start": "unit",
        "score_dropout": 0.0,
        "anchor_rule": "paper",
        "ksvd_square": "batch",
    }
    return {"default": paper | {"batching": "bucket"}, "paper": paper | published}
