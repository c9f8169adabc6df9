"""How long a campaign goes on, and what came of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHOWN = 25  # failures that are told; all are counted


@dataclass(frozen=True)
class Budget:
    """Cases `first`, `first` + 1, ... as long as there is time and fewer than `cases` are done; one
    even if what comes before it has taken all the time."""

    seconds: float
    cases: int | None = None
    first: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    def __iter__(self) -> Iterator[int]:
        number = self.first
        while number == self.first or self.spent < self.seconds:
            if self.cases is not None and number >= self.first + self.cases:
                return
            yield number
            number += 1


@dataclass
class Tally:
    """What a campaign has done. `failures` are sentences that begin with the number of the case."""

    name: str
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # of what happened, in words
    figures: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, number: int, what: str) -> None:
        self.failures.append(f"case {number}: {what}")

    def line(self) -> str:
        said = [f"{n:,} {what}" for what, n in sorted(self.counts.items())]
        said += [f"{name} {figure}" for name, figure in self.figures.items()]
        whole = "; ".join([f"{self.cases:,} cases", *said, f"{len(self.failures)} failed"])
        return f"{self.name}: {whole} ({self.seconds:.0f} s)"


Campaign = Callable[[Budget, Tally, Path], None]


def chance(campaign: str, number: int) -> random.Random:
    """The generator of a case: the same whenever it is repeated."""
    return random.Random(f"{campaign} {number}")
