"""Sequences of events: the set, its checks, and its batches."""

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
from torch.utils.data import Dataset

from ...models.events import GapScales
from ...theory.time import TimeScales
from ..base import DataError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EventSet:
    """Sequences of events, each with times (N,) that do not decrease and types (N,), which are
    indices into `names`. Of a sequence all events but the first are predicted."""

    name: str
    times: tuple[Floats, ...]
    types: tuple[Integers, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.times:
            raise DataError(f"{self.name} has no sequence of two events; expected at least one")
        for number, (times, types) in enumerate(zip(self.times, self.types, strict=True), 1):
            check_sequence(f"sequence {number} of {self.name}", times, types, len(self.names))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def events(self) -> int:
        """Events that are predicted: all but the first of every sequence."""
        return sum(map(len, self.times)) - len(self)

    @cached_property
    def gaps(self) -> Floats:
        """Between the events, of all sequences."""
        return np.concatenate([np.diff(times) for times in self.times])

    def subset(self, indices: Sequence[int] | Integers) -> EventSet:
        chosen = [int(i) for i in indices]
        times = tuple(self.times[i] for i in chosen)
        types = tuple(self.types[i] for i in chosen)
        return EventSet(self.name, times, types, self.names)

    def fingerprint(self) -> str:
        """A hash of times, types and names."""
        digest = hashlib.sha256(repr((self.names, [len(times) for times in self.times])).encode())
        for times, types in zip(self.times, self.types, strict=True):
            digest.update(times.astype("<f8").tobytes())
            digest.update(types.astype("<i8").tobytes())
        return digest.hexdigest()

    def time_scales(self) -> TimeScales:
        return TimeScales.of(self.times)

    def gap_scales(self) -> GapScales:
        """Of the gaps that are not zero; half the smallest one stands for a gap of zero."""
        positive = self.gaps[self.gaps > 0]
        if not len(positive):
            raise DataError(
                f"all events of a sequence of {self.name} happen at once; expected gaps"
            )
        log = np.log(positive)
        return GapScales(float(log.mean()), max(float(log.std()), 0.1), float(positive.min()) / 2)


def check_sequence(what: str, times: Floats, types: Integers, known: int) -> None:
    """Raise unless it is a sequence of events."""
    if len(times) != len(types) or not len(times):
        raise DataError(
            f"{what} has {len(times)} times and {len(types)} types; expected as many, at least one"
        )
    if not np.isfinite(times).all():
        where = int(np.argmin(np.isfinite(times)))
        raise DataError(
            f"{what} has the time {times[where]} at event {where + 1}; expected numbers"
        )
    steps = np.diff(times)
    if (steps < 0).any():
        where = int(np.argmax(steps < 0))
        raise DataError(
            f"{what} goes back in time: event {where + 2} is at {times[where + 1]!r}, after "
            f"{times[where]!r}; expected times that do not decrease"
        )
    if types.min() < 0 or types.max() >= known:
        raise DataError(f"{what} has types up to {types.max()}; expected 0 to {known - 1}")


class EventBatch(NamedTuple):
    """Every event but the last of B sequences, padded to N, and the one that follows each."""

    types: Tensor  # (B, N) int64
    times: Tensor  # (B, N) float64
    next_types: Tensor
    next_times: Tensor
    padding: Tensor  # (B, N), True = ignore

    @property
    def gaps(self) -> Tensor:
        return self.next_times - self.times


class EventData(Dataset[EventBatch]):
    """A set as batches of whole sequences."""

    def __init__(self, data: EventSet) -> None:
        self.data = data
        self.lengths = torch.tensor([len(times) - 1 for times in data.times])
        self.starts = torch.cat([torch.zeros(1, dtype=torch.long), self.lengths.cumsum(0)])

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: Sequence[int]) -> EventBatch:
        n = int(self.lengths[torch.as_tensor(list(indices))].max()) + 1
        types = torch.zeros(len(indices), n, dtype=torch.long)
        times = torch.zeros(len(indices), n, dtype=torch.float64)
        padding = torch.ones(len(indices), n - 1, dtype=torch.bool)
        for row, i in enumerate(indices):
            count = len(self.data.times[i])
            types[row, :count] = torch.from_numpy(self.data.types[i])
            times[row, :count] = torch.from_numpy(self.data.times[i])
            padding[row, : count - 1] = False
        return EventBatch(types[:, :-1], times[:, :-1], types[:, 1:], times[:, 1:], padding)

    def places(self, indices: Sequence[int]) -> Tensor:
        """Where the predicted events of these sequences stand among all."""
        return torch.cat([torch.arange(*self.starts[i : i + 2].tolist()) for i in indices])
