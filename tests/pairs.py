"""Grids of which every two values meet, in place of all products."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**given: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrises by few cells: every value of an axis meets every value of every other one.

    Two values together show most mistakes. Where three can, an axis holds tuples of two and its
    names are joined by `__`: `pairwise(kind=KINDS, fast__grad=[(True, True), (False, True)])`.
    """
    axes = {name: list(values) for name, values in given.items()}
    cells = list(product(*(range(len(values)) for values in axes.values())))
    wanted = {pair for cell in cells for pair in _pairs(cell)}
    chosen = []
    while wanted:
        best = max(cells, key=lambda cell: len(wanted.intersection(_pairs(cell))))
        wanted.difference_update(_pairs(best))
        chosen.append(best)
    names = [name for joined in axes for name in joined.split("__")]
    rows = []
    for cell in sorted(chosen):
        row: list[Any] = []
        for (name, values), at in zip(axes.items(), cell, strict=True):
            row += values[at] if "__" in name else [values[at]]
        rows.append(row)
    return pytest.mark.parametrize(names, rows)


def _pairs(cell: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    return list(combinations(enumerate(cell), 2))
