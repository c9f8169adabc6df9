"""Random ListOps expressions by the benchmark's rules.

A node above the greatest depth is an operator with probability 1/4, with 2 to `max_args` arguments;
otherwise a digit. Trees are drawn until their length lies between the bounds (both excluded).
The benchmark draws them one by one; here a level of many trees at once, which is the same
distribution: nodes are independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..jobs import check_least
from .listops import CLOSE, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS

OPERATOR_SHARE = 0.25
TREES = 4096  # drawn at once; few are long enough
PATIENCE = 100  # times that many trees without a fitting one

Ints = npt.NDArray[np.int64]
Drawn = tuple[str, int, bytes]  # source text, value, tokens


@dataclass(frozen=True, kw_only=True)
class ListOpsSettings:
    """What the files hold; the defaults are the benchmark's."""

    train: int = 96_000
    validation: int = 2_000
    test: int = 2_000
    max_depth: int = 10
    max_args: int = 10
    min_length: int = 500
    max_length: int = 2_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, train=1, validation=1, test=1, max_depth=2, max_args=2)
        check_least(self, min_length=0, seed=0)
        if self.max_length < self.min_length + 2:
            raise ValueError(
                f"max_length is {self.max_length}; expected more than min_length + 1 = "
                f"{self.min_length + 1}"
            )

    @property
    def total(self) -> int:
        return self.train + self.validation + self.test


def draw(settings: ListOpsSettings, chunk: int, count: int) -> list[Drawn]:
    """Expressions (source text, value, tokens) of a chunk, a function of (seed, chunk) alone."""
    rng = np.random.default_rng([settings.seed, chunk])
    found: list[Drawn] = []
    rounds = 0
    while len(found) < count:
        found += _draw_trees(rng, settings)
        rounds += 1
        if not found and rounds == PATIENCE:
            raise ValueError(
                f"no expression among {PATIENCE * TREES} fits {settings}; expected lengths that "
                "trees of this depth reach"
            )
    return found[:count]


class _Level(NamedTuple):
    """The nodes of one depth of all trees, parents in order, children in order."""

    parent: Ints  # (nodes,), index into the level above; at the root the tree
    operator: Ints  # (nodes,), 0 to 3, or -1: a digit
    digit: Ints  # (nodes,)
    arguments: Ints  # (nodes,), 0 for a digit


def _draw_trees(rng: np.random.Generator, settings: ListOpsSettings) -> list[Drawn]:
    """The trees of fitting length among `TREES`."""
    levels: list[_Level] = []
    tree = parent = np.arange(TREES)
    lengths = np.zeros(TREES, dtype=np.int64)
    for level in range(1, settings.max_depth + 1):
        n = len(parent)
        is_operator = (rng.random(n) < OPERATOR_SHARE) & (level < settings.max_depth)
        # a tree that is too long already need not grow: it is thrown away
        is_operator &= lengths[tree] < settings.max_length
        operator = np.where(is_operator, rng.integers(0, len(OPERATORS), n), -1)
        arguments = np.where(is_operator, rng.integers(2, settings.max_args + 1, n), 0)
        levels.append(_Level(parent, operator, rng.integers(0, 10, n), arguments))
        lengths += np.bincount(tree, weights=1 + is_operator, minlength=TREES).astype(np.int64)
        parent = np.repeat(np.arange(n), arguments)
        tree = tree[parent]
    fits = (lengths > settings.min_length) & (lengths < settings.max_length)
    return _expressions(_keep(levels, fits))


def _keep(levels: Sequence[_Level], kept: npt.NDArray[np.bool_]) -> list[_Level]:
    """The levels of some trees alone."""
    result = []
    for level in levels:
        places = np.cumsum(kept) - 1  # new numbers in the level above
        kept = kept[level.parent]
        parent, operator, digit, arguments = (column[kept] for column in level)
        result.append(_Level(places[parent], operator, digit, arguments))
    return result


def _expressions(levels: Sequence[_Level]) -> list[Drawn]:
    """Trees as text, value and tokens. Sizes and values rise from the leaves, places sink from the
    root; a node's words are its operator, those of its arguments, and the closing bracket."""
    sizes: list[Ints] = []
    values = np.zeros(0, dtype=np.int64)
    for depth_below, level in enumerate(reversed(levels)):
        size = 1 + (level.operator >= 0).astype(np.int64)
        worth = level.digit.copy()
        if depth_below:
            below = levels[len(levels) - depth_below]
            size += np.bincount(below.parent, sizes[-1], len(size)).astype(np.int64)
            _apply(worth, level, values)
        sizes.append(size)
        values = worth
    sizes.reverse()

    total, roots = int(sizes[0].sum()), np.cumsum(sizes[0]) - sizes[0]
    tokens = np.zeros(total, dtype=np.uint8)
    arguments = np.zeros(total, dtype=np.int64)  # at an operator
    start = roots
    for i, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        if i:
            before = np.cumsum(size) - size  # within the level; now within the parent
            first = np.searchsorted(level.parent, level.parent)
            start = start[level.parent] + 1 + before - before[first]
        is_operator = level.operator >= 0
        tokens[start] = np.where(
            is_operator, FIRST_OPERATOR + level.operator, FIRST_DIGIT + level.digit
        )
        tokens[(start + size - 1)[is_operator]] = CLOSE
        arguments[start] = level.arguments
    cuts = [(s, s + n) for s, n in zip(roots.tolist(), sizes[0].tolist(), strict=True)]
    return [
        (_text(tokens[a:b], arguments[a:b]), v, tokens[a:b].tobytes())
        for (a, b), v in zip(cuts, values.tolist(), strict=True)
    ]


def _apply(worth: Ints, level: _Level, below: Ints) -> None:
    """Put the values of the operators of a level in, given those of their arguments."""
    operators = np.flatnonzero(level.operator >= 0)
    if not len(operators):
        return
    counts = level.arguments[operators]
    starts = np.cumsum(counts) - counts
    group = np.repeat(np.arange(len(operators)), counts)
    ordered = below[np.lexsort((below, group))]  # within each operator's arguments
    middle = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) // 2
    results = np.stack(
        [ordered[starts], ordered[starts + counts - 1], middle, np.add.reduceat(below, starts) % 10]
    )  # as in OPERATORS
    worth[operators] = results[level.operator[operators], np.arange(len(operators))]


_DIGITS = [f"{d} )" for d in range(10)]


def _text(tokens: npt.NDArray[np.uint8], arguments: Ints) -> str:
    """The benchmark's text: every operator is applied to one argument after the other, each time in
    parentheses, and at last to the closing bracket."""
    words = []
    for token, count in zip(tokens.tolist(), arguments.tolist(), strict=True):
        if token >= FIRST_DIGIT:
            words.append(_DIGITS[token - FIRST_DIGIT])
        elif token == CLOSE:
            words.append("] ) )")
        else:
            words.append("( " * (count + 1) + "[" + OPERATORS[token - FIRST_OPERATOR])
    return " ".join(words)[:-2]  # the root is nobody's argument
