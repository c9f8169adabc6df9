"""What does not change while a model is adapted, computed once for every batch: the answers of the
original, and the hidden states before the first converted layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...convert.matching import Distance, Goal, Pair


class Known(NamedTuple):
    """Of one batch. state: what the original has before its first converted block, if the student
    has the same there."""

    goal: Goal
    state: Tensor | None


class Memory:
    """Distances of batches that come again, by their numbers, with up to `gigabytes` of what is
    known of them. What has no room is computed every time; the distances are the same.

    A model whose blocks stand in a list is entered at the first block that is converted, with the
    original's states. Whether that changes nothing is tried on the first batch.
    """

    def __init__(self, pair: Pair, batches: Sequence[Any], gigabytes: float) -> None:
        self.pair, self.batches = pair, batches
        self.left = gigabytes * 1e9
        self.known: dict[int, Known] = {}
        self.early = _blocks_before(pair)
        if self.early and not self._changes_nothing():
            self.early = []

    def distance(self, number: int) -> Distance:
        """Of a batch, with the graph of the student."""
        known = self.known.get(number)
        if known is None:
            known = self._ask(number)
            size = known.goal.bytes + (0 if known.state is None else known.state.nbytes)
            if size <= self.left:
                self.left -= size
                self.known[number] = known
        return self._distance(number, known)

    def _ask(self, number: int) -> Known:
        batch = self.batches[number]
        if not self.early:
            return Known(self.pair.goal(batch), None)
        with _states(self.pair.teacher.get_submodule(self.early[-1])) as states:
            goal = self.pair.goal(batch)
        return Known(goal, states[0] if len(states) == 1 else None)

    def _distance(self, number: int, known: Known) -> Distance:
        batch, goal, state = self.batches[number], known.goal, known.state
        if state is None:
            return self.pair.distance(batch, goal)
        with _entered([self.pair.student.get_submodule(name) for name in self.early], state):
            return self.pair.distance(batch, goal)

    @torch.no_grad()
    def _changes_nothing(self) -> bool:
        known = self._ask(0)
        whole = self.pair.distance(self.batches[0], known.goal)
        found = self._distance(0, known)
        close = torch.allclose(found.blocks, whole.blocks, rtol=1e-4)
        return close and torch.allclose(found.outputs, whole.outputs, rtol=1e-4)


def _blocks_before(pair: Pair) -> list[str]:
    """The blocks before the first one that is converted, if nothing in them is trained."""
    parent, _, index = pair.blocks[0].rpartition(".")
    if not parent or not index.isdigit():
        return []
    blocks = pair.student.get_submodule(parent)
    if not isinstance(blocks, nn.ModuleList | nn.Sequential):
        return []
    early = list(blocks)[: int(index)]
    trained = any(p.requires_grad for block in early for p in block.parameters())
    if trained or len(set(early)) < len(early):
        return []
    return [f"{parent}.{number}" for number in range(len(early))]


@contextmanager
def _states(block: nn.Module) -> Iterator[list[Tensor]]:
    """What a block gives, while a `with` lasts."""
    states: list[Tensor] = []

    def keep(module: nn.Module, args: Any, out: Any) -> None:
        if isinstance(out, Tensor):
            states.append(out.detach())

    hook = block.register_forward_hook(keep)
    try:
        yield states
    finally:
        hook.remove()


@contextmanager
def _entered(early: Sequence[nn.Module], state: Tensor) -> Iterator[None]:
    """For the time of a `with`, these blocks compute nothing and give a state that is known."""
    for block in early:
        block.__dict__["forward"] = lambda *args, **kwargs: state
    try:
        yield
    finally:
        for block in early:
            del block.__dict__["forward"]
