"""Recorded episodes in memory, and what a Decision Transformer learns from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..base import DataError

Floats = npt.NDArray[np.float32]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

DIMENSIONS = {"observations": 2, "actions": 2, "rewards": 1, "terminals": 1, "timeouts": 1}
SMALLEST_STD = 1e-3  # a state that hardly changes is not blown up


@dataclass(frozen=True)
class Trajectories:
    """Steps of episodes, one episode after the other.

    An episode ends with the step that leads to a final state (`terminals`) or after which it was
    cut (`timeouts`), and with the last step of all.
    """

    name: str
    observations: Floats  # (steps, state_dim), before the action
    actions: Floats  # (steps, action_dim)
    rewards: Floats  # (steps,)
    terminals: Booleans  # (steps,)
    timeouts: Booleans  # (steps,)

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @cached_property
    def starts(self) -> Integers:
        """(episodes,): where every episode begins."""
        ends = self.terminals | self.timeouts
        return np.concatenate([[0], np.flatnonzero(ends[:-1]) + 1]).astype(np.int64)

    @cached_property
    def lengths(self) -> Integers:
        """(episodes,)"""
        return np.diff(np.append(self.starts, self.steps))

    @cached_property
    def returns(self) -> npt.NDArray[np.float64]:
        """(episodes,): the sum of the rewards of every episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.starts)

    @cached_property
    def returns_to_go(self) -> Floats:
        """(steps,): the sum of the rewards from a step to the end of its episode."""
        backwards = self.rewards[::-1].astype(np.float64).cumsum()[::-1]  # to the end of all
        after = np.append(backwards[self.starts[1:]], 0.0)  # what follows an episode
        to_go: Floats = (backwards - np.repeat(after, self.lengths)).astype(np.float32)
        return to_go

    @cached_property
    def timesteps(self) -> Integers:
        """(steps,): how many steps of its episode came before."""
        since: Integers = np.arange(self.steps) - np.repeat(self.starts, self.lengths)
        return since

    @cached_property
    def state_mean(self) -> Floats:
        mean: Floats = self.observations.mean(0, dtype=np.float64).astype(np.float32)
        return mean

    @cached_property
    def state_std(self) -> Floats:
        """(state_dim,); one where a state never changes: nothing says how far it may go later."""
        std = self.observations.std(0, dtype=np.float64)
        constant = np.ptp(self.observations, axis=0) == 0
        safe: Floats = np.where(constant, 1.0, np.maximum(std, SMALLEST_STD)).astype(np.float32)
        return safe

    @cached_property
    def action_scale(self) -> Floats:
        """(action_dim,): the greatest absolute value of every action."""
        greatest: Floats = np.maximum(np.abs(self.actions).max(0), np.float32(1e-6))
        return greatest

    def best_decile(self) -> float:
        """The return that a tenth of the episodes reach."""
        return float(np.quantile(self.returns, 0.9))

    def subset(self, episodes: Sequence[int] | Integers) -> Trajectories:
        """The episodes with these numbers, in their order."""
        if len(episodes) == 0:
            raise ValueError("no episodes are asked for; expected at least one")
        spans = [np.arange(self.starts[e], self.starts[e] + self.lengths[e]) for e in episodes]
        rows = np.concatenate(spans)
        found = {name: getattr(self, name)[rows] for name in DIMENSIONS}
        ends = np.cumsum([len(span) for span in spans]) - 1
        found["timeouts"][ends] |= ~found["terminals"][ends]  # the last of all may have had no mark
        return Trajectories(self.name, **found)

    def fingerprint(self) -> str:
        """A hash of all that a model may learn from."""
        digest = hashlib.sha256()
        for field in (getattr(self, name) for name in DIMENSIONS):
            digest.update(repr((field.shape, field.dtype.str)).encode())
            digest.update(np.ascontiguousarray(field).tobytes())
        return digest.hexdigest()

    def __post_init__(self) -> None:
        for field, dimensions in DIMENSIONS.items():
            array = getattr(self, field)
            if array.ndim != dimensions:
                raise DataError(
                    f"{self.name}: {field} has shape {array.shape}; expected {dimensions} "
                    "dimensions"
                )
            if len(array) != len(self.observations):
                raise DataError(
                    f"{self.name}: {field} has {len(array)} steps; expected "
                    f"{len(self.observations)}, as many as observations"
                )
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
                raise DataError(
                    f"{self.name}: {field} is not finite at step {bad[0]} ({len(bad)} such steps); "
                    "expected numbers"
                )
        if len(self.observations) == 0:
            raise DataError(f"{self.name} has no steps; expected at least one")


class ContextBatch(NamedTuple):
    """Pieces of episodes, T steps each, shorter ones padded on the left; the arguments of a
    DecisionTransformer."""

    states: Tensor  # (B, T, state_dim)
    actions: Tensor  # (B, T, action_dim)
    returns: Tensor  # (B, T, 1), to go
    timesteps: Tensor  # (B, T) int64
    padding: Tensor  # (B, T) bool, True = ignore


class Contexts:
    """The pieces of at most `context` steps that end at the steps of trajectories: piece i ends at
    step i, so that drawing pieces evenly draws episodes by their length. A piece is shorter only
    at the beginning of an episode, as an agent's memory is."""

    def __init__(self, data: Trajectories, context: int) -> None:
        if context < 1:
            raise ValueError(f"context is {context}; expected an integer of at least 1")
        self.context = context
        self._states = torch.from_numpy(data.observations)
        self._actions = torch.from_numpy(data.actions)
        self._returns = torch.from_numpy(data.returns_to_go).unsqueeze(-1)
        self._times = torch.from_numpy(data.timesteps)

    def __len__(self) -> int:
        return len(self._times)

    def steps_of(self, indices: Sequence[int]) -> int:
        """How many steps these pieces have, without padding."""
        return int((self._times[list(indices)] + 1).clamp(max=self.context).sum())

    def __getitems__(self, indices: Sequence[int]) -> ContextBatch:
        """The whole batch at once."""
        last = torch.as_tensor(indices, dtype=torch.int64).unsqueeze(-1)  # (B, 1)
        ago = torch.arange(self.context - 1, -1, -1)  # (T,)
        padding = ago > self._times[last]  # (B, T)
        at = torch.where(padding, last, last - ago)
        hidden = padding.unsqueeze(-1)
        rows = (t[at].masked_fill(hidden, 0.0) for t in (self._states, self._actions))
        states, actions = rows
        returns = self._returns[at].masked_fill(hidden, 0.0)
        return ContextBatch(states, actions, returns, self._times[at], padding)
