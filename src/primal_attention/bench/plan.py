"""What a benchmark is asked to measure, and who is told how it goes on."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import torch

from .candidates import Candidate
from .lengths import format_lengths
from .results import Cell
from .settings import Settings


@dataclass(frozen=True)
class Plan:
    """What to measure. `budget` is the seconds that one candidate may take at one length, all its
    repeats together; what would take longer is skipped."""

    settings: Settings
    candidates: tuple[Candidate, ...]
    lengths: tuple[int, ...]
    budget: float

    def __post_init__(self) -> None:
        try:
            torch.device(self.settings.device)
        except RuntimeError:
            raise ValueError(
                f"device is {self.settings.device!r}; expected cpu, cuda, mps or such"
            ) from None
        if not self.budget > 0:
            raise ValueError(f"budget is {self.budget}; expected more than 0 seconds")
        for candidate in self.candidates:
            candidate.layers(self.settings.layers)

    @property
    def command(self) -> str:
        """The command line that does this."""
        fields = self.settings.to_dict()
        fields["pass"] = fields.pop("mode")
        words = ["primal", "bench", fields.pop("what")]
        words += ["--attention", ",".join(candidate.text for candidate in self.candidates)]
        words += ["--length", format_lengths(self.lengths)]
        for name, value in fields.items():
            words += [f"--{name}", str(value)]
        return shlex.join([*words, "--budget", f"{self.budget:g}"])


class Watch:
    """Is told how a benchmark goes on; by itself it is silent."""

    def started(self, folder: Path, title: str, cells: int, kept: int) -> None:
        """A benchmark of so many cells begins; `kept` of them are known from an earlier run."""

    def part(self, title: str) -> None:
        """A part of a benchmark of several begins."""

    def working(self, share: float, text: str) -> None:
        """A share of the benchmark is done, and the text says what comes."""

    def found(self, cell: Cell) -> None:
        """A cell has got its final state."""
