"""Time series made from random numbers, whose distant parts must be compared.

`made/repetition`: does the end of a series repeat its beginning? Both hold four shapes in a row, of
eight shapes that all series share, under noise:

    noise | shape c | shape a | shape f | shape b |     noise     | shape c | ... |  noise

At the end stand the same shapes in the same order (class `repeated`), or in an order in which none
has kept its place (class `other`); where both patterns begin is random. Each pattern alone, and the
number of times that a shape occurs, say nothing about the class: it is in no part of a series, only
in two parts together. What stands at the beginning is at least APART steps before its repetition,
farther than the convolutions of the net for time series see (tests/tasks/test_made.py). A sum of
what is found around each position has no correlation with the class, whatever is looked for:
without attention, about 50 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from ..names import unknown
from .base import DataStatus, Task
from .net import net_settings
from .series import Floats, SeriesSet

CASES = {"train": 2000, "test": 1000}
LENGTH, CHANNELS = 192, 2
SHAPES, STEPS, SLOTS = 8, 12, 4  # kinds of shapes, how long each is, how many make a pattern
ROOM = 16  # steps by which the begin of a pattern varies
NOISE = 0.3  # its deviation; shapes have mean square 1
PATTERN = SLOTS * STEPS
APART = LENGTH - PATTERN - 2 * ROOM
FACTS = f"{CASES['train']}/{CASES['test']} cases, {CHANNELS} channels, length {LENGTH}, 2 classes"
_SEEDS = {"shapes": 2, "train": 0, "test": 1}  # of 2, no two shapes are near each other
_OTHER_ORDERS = np.array(
    [p for p in permutations(range(SLOTS)) if all(i != slot for i, slot in enumerate(p))]
)


def shapes() -> Floats:
    """The shapes (SHAPES, STEPS, CHANNELS) that all series share: sums of three half waves."""
    rng = np.random.default_rng(_SEEDS["shapes"])
    t = np.linspace(0.0, 1.0, STEPS)[:, None]
    waves = np.sin(np.pi * t * np.arange(1, 4))  # (STEPS, 3)
    found = waves @ rng.standard_normal((SHAPES, 3, CHANNELS))
    scaled: Floats = found / np.sqrt(np.square(found).mean((1, 2), keepdims=True))
    return scaled


def repetition(cases: int, seed: int) -> SeriesSet:
    """So many series, every other one of class `repeated`; a function of the two numbers alone."""
    rng = np.random.default_rng([seed, cases])
    labels = np.arange(cases) % 2
    first = rng.permuted(np.tile(np.arange(SHAPES), (cases, 1)), axis=1)[:, :SLOTS]
    orders = _OTHER_ORDERS[rng.integers(len(_OTHER_ORDERS), size=cases)]
    orders = np.where(labels[:, None] == 1, np.arange(SLOTS), orders)
    second = np.take_along_axis(first, orders, axis=1)
    starts = rng.integers(ROOM + 1, size=(cases, 2))
    starts[:, 1] += LENGTH - PATTERN - ROOM
    series = NOISE * rng.standard_normal((cases, LENGTH, CHANNELS))
    known = shapes()
    for x, begins, patterns in zip(series, starts, zip(first, second, strict=True), strict=True):
        for begin, pattern in zip(begins, patterns, strict=True):
            x[begin : begin + PATTERN] += known[pattern].reshape(PATTERN, CHANNELS)
    return SeriesSet("repetition", list(series), labels, ("other", "repeated"))


@dataclass(frozen=True)
class Repetition(Task):
    """Tell whether the end of a series repeats its beginning; the metric is accuracy."""

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] = ("train", "test")
    ) -> dict[str, SeriesSet]:
        for split in splits:
            if split not in self.splits:
                raise ValueError(unknown(f"split of {self.name}:", split, self.splits))
        return {split: repetition(CASES[split], _SEEDS[split]) for split in splits}

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        places = dict.fromkeys(self.splits, "made when it is used")
        return DataStatus(self.name, FACTS, places, (), "")


def made_tasks() -> list[Task]:
    """The task of this file."""
    recipes = {"default": net_settings(CASES["train"]), "transformer": {}}
    about = "does the end of a series repeat its beginning"
    return [Repetition("made/repetition", f"{about}: {FACTS}", recipes)]
