"""Which few positions a prediction hangs on: the smallest sets whose removal changes the class.

Sets of 1, 2, ... units are tried in an order that a ranking of the units gives, until the model
itself says another class (after CLEANN, Rohekar et al., NeurIPS 2023). The ranking only saves
calls: what is returned was verified by the model, and where all smaller sets were tried nothing
smaller exists. The removal is an intervention on the model's input, and says nothing beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from torch import nn

from ..names import check_choice
from .cases import Case, Units, case_of
from .graph import AttentionGraph
from .ranking import Order, rank

Array = npt.NDArray[np.float64]
Tell = Callable[[int, int], None]  # calls done, budget

_CANDIDATES = 60_000  # sets of one size that are put in order


@dataclass(frozen=True)
class Removal:
    """Units whose removal gives another class: their positions, and what the model then says."""

    units: tuple[int, ...]
    positions: tuple[int, ...]
    prediction: int
    probability: float  # of the class that was predicted before


@dataclass(frozen=True, eq=False)
class Explanation:
    """`removals` are of one size, the first one found first; empty if the budget ran out. `calls`
    are the sets that were tried up to the first, `evaluations` all that the model was asked. With
    `smallest` all sets of fewer units were tried. `exact`: removal is padding."""

    prediction: int
    probability: float
    removals: tuple[Removal, ...]
    units: Units
    calls: int
    evaluations: int
    smallest: bool
    order: Order
    exact: bool
    graph: AttentionGraph | None = None

    @property
    def size(self) -> int | None:
        """Units of a removal; None without one."""
        return len(self.removals[0].units) if self.removals else None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        return {
            "prediction": self.prediction,
            "probability": self.probability,
            "removals": [vars(one) | {"units": list(one.units), "positions": list(one.positions)}
                         for one in self.removals],
            "units": [list(unit) for unit in self.units],
            "calls": self.calls,
            "evaluations": self.evaluations,
            "smallest": self.smallest,
            "order": self.order,
            "exact": self.exact,
        }  # fmt: skip


def explain(
    model: nn.Module,
    inputs: Any,
    *,
    units: Any = None,
    order: Order = "attention",
    most: int = 3,
    budget: int = 500,
    batch: int = 32,
    every: bool = False,
    samples: int | None = None,
    alpha: float = 0.01,
    seed: int = 0,
    tell: Tell | None = None,
) -> Explanation:
    """The smallest sets of units whose removal changes what a classifier predicts for one case.

    `inputs` and `units`: see `case_of`, or a `Case`; with many positions, units of several (words,
    segments) are what a person can read. `order`: "attention", by the weight that they get in the
    last attention; "graph", by distance from the target in the conditional-independence graph of
    its kernel (`samples`, `alpha`: see `attention_graph`); "gradient", gradient times input;
    "random"; "greedy", like "graph", but sets of several units by what their members did alone.
    `most`: the largest set. `budget`: sets to try. `batch`: sets in a call of the model. `every`:
    go on through the size at which the first was found. `tell(done, budget)` hears of progress.
    """
    check_choice("order", order, get_args(Order))
    for name, value in (("most", most), ("budget", budget), ("batch", batch)):
        if value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    case = inputs if isinstance(inputs, Case) else case_of(model, inputs, units)
    cost, graph = rank(case, order, samples, alpha, seed)
    return search(case, cost, order, most, budget, batch, every=every, graph=graph, tell=tell)


def search(
    case: Case,
    cost: Array,
    order: Order,
    most: int,
    budget: int,
    batch: int,
    *,
    every: bool = False,
    graph: AttentionGraph | None = None,
    tell: Tell | None = None,
) -> Explanation:
    """Try sets of units in the order of their summed `cost` (units,), small sets first."""
    count = len(case.units)
    (before,) = case.ask(np.zeros((1, count), dtype=bool), 1)
    predicted = int(before.argmax())
    drops = np.zeros(count)
    found: list[Removal] = []
    tried, calls, smallest = 0, 0, True
    for size in range(1, min(most, case.most) + 1):
        by = cost if size == 1 or order != "greedy" else -drops
        sets, whole = _ordered(by, size, budget - tried)
        for first in range(0, len(sets), batch):
            part = sets[first : first + batch]
            masks = np.zeros((len(part), count), dtype=bool)
            np.put_along_axis(masks, part, True, 1)
            after = case.ask(masks, batch)
            if size == 1:
                drops[part[:, 0]] = before[predicted] - after[:, predicted]
            for place, (chosen, row) in enumerate(zip(part, after, strict=True)):
                if row.argmax() != predicted:
                    calls = calls or tried + place + 1
                    found.append(_removal(case, chosen, row, predicted))
            tried += len(part)
            if tell is not None:
                tell(tried, budget)
            if found and not every:
                break
        if found or tried >= budget:
            break
        smallest = smallest and whole
    return Explanation(
        predicted, float(before[predicted]), tuple(found), case.units, calls or tried, tried,
        smallest and bool(found), order, case.exact, graph,
    )  # fmt: skip


def _removal(case: Case, chosen: Any, row: Array, predicted: int) -> Removal:
    units = tuple(int(i) for i in sorted(chosen))
    positions = tuple(sorted(place for i in units for place in case.units[i]))
    return Removal(units, positions, int(row.argmax()), float(row[predicted]))


def _ordered(cost: Array, size: int, left: int) -> tuple[npt.NDArray[np.int64], bool]:
    """The first `left` sets (n, size) of units by summed cost, ties by the cost of the first; and
    whether these are all. Of very many, only those of the cheapest units are put in order."""
    by = np.argsort(cost, kind="stable")
    members = len(by)
    while members > size and _count(members, size) > _CANDIDATES:
        members -= 1
    sets = np.array(list(combinations(by[:members].tolist(), size)), dtype=np.int64)
    ranks = np.empty(len(by))
    ranks[by] = np.arange(len(by))
    keys = np.lexsort((ranks[sets].sum(1), cost[sets].sum(1)))
    whole = _count(len(by), size) <= left
    return sets[keys[:left]], whole


def _count(members: int, size: int) -> int:
    found = 1
    for i in range(size):
        found = found * (members - i) // (i + 1)
    return found
