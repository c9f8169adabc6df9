"""Which run tells most for the time it takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..tasks.lra.recipes import PLANS
from ..tasks.uea.archive import ARCHIVE
from ..train.config import EngineConfig
from ..train.sweep.store import key_of
from .cells import Cell

PEER = 0.25  # what a cell of a peer is worth, beside one of the paper's models or the Transformer
ARENA_TEST_CASES = {
    "listops": 2000, "text": 25000, "retrieval": 17437, "image": 10000, "pathfinder": 20000,
}  # fmt: skip
ARENA_LENGTHS = {
    "listops": 2000, "text": 4000, "retrieval": 8000, "image": 1024, "pathfinder": 1024,
}  # fmt: skip


IMAGES, PATCHES = 126_689, 197  # of ImageNet-100, and of DeiT-Small/16


def ordered(cells: Sequence[Cell], seeds: Sequence[int]) -> list[EngineConfig]:
    """The runs of the cells, those that tell most for their time first; each run once.

    What the seed number j (from 0) of a cell tells is w sqrt(n) / (1 + j)^2, with n test cases (an
    interval shrinks with their root) and w = 1, or a quarter for peers. Its time is taken as
    proportional to `work`.
    """
    runs: dict[str, tuple[float, EngineConfig]] = {}
    for cell in cells:
        if cell.config is None:
            continue
        for j, seed in enumerate(seeds):
            config = dataclasses.replace(cell.config, seed=seed)
            value = worth(config) / (1 + j) ** 2 / work(config)
            runs.setdefault(key_of(config), (value, config))
    return [config for _, config in sorted(runs.values(), key=lambda run: -run[0])]


def worth(config: EngineConfig) -> float:
    """What a first run tells."""
    ours = all(name in ("softmax", "primal") for name in config.attention)
    return (1.0 if ours else PEER) * math.sqrt(_test_cases(config.task))


def work(config: EngineConfig) -> float:
    """The multiplications of a training, roughly: for every position and layer the projections and
    the feed-forward part, and for softmax its row of the attention matrix."""
    positions, length = _positions(config)
    row = 4 * config.width**2 + 2 * config.width * config.feedforward
    rows = sum(
        row + (2 * length * config.width if name == "softmax" else 0) for name in config.attention
    )
    return float(positions * rows)


def _positions(config: EngineConfig) -> tuple[int, int]:
    """The positions that a training sees, and the length of its sequences."""
    family, _, name = config.task.partition("/")
    if family == "uea":
        facts = ARCHIVE[name]
        length = facts.lengths[0].longest
        return config.epochs * facts.cases[0] * length, length
    if family == "images":
        length, usual = PATCHES, IMAGES // config.batch_size
    elif family == "lra":
        length, usual = ARENA_LENGTHS[name], PLANS[name].steps // config.epochs
    else:  # their settings name the steps
        length, usual = config.longest(), 0
    steps = config.epoch_steps or usual
    return config.epochs * steps * config.batch_size * length, length


def _test_cases(task: str) -> int:
    family, _, name = task.partition("/")
    if family in ("images", "rl"):  # all cells of such a table tell the same
        return 1
    return ARENA_TEST_CASES[name] if family == "lra" else ARCHIVE[name].cases[1]
