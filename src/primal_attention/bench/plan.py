"""What a benchmark is asked to measure, and who is told how it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..grammar import parse_lengths, show_lengths
from .candidates import Candidate, choose_candidates, default_candidates, with_references
from .results import Cell
from .settings import ARENA, Settings, command_words
from .steps import arena_task

LENGTHS, CELL_BUDGET = "512:65536:x2", 20.0


@dataclass(frozen=True)
class Plan:
    """What to measure. `cell_budget` is the seconds that one candidate may take at one length, all
    its repeats together; what would take longer is skipped."""

    settings: Settings
    candidates: tuple[Candidate, ...]
    lengths: tuple[int, ...]
    cell_budget: float

    def __post_init__(self) -> None:
        try:
            torch.device(self.settings.device)
        except RuntimeError:
            raise ValueError(
                f"device is {self.settings.device!r}; expected cpu, cuda, mps or such"
            ) from None
        if not self.cell_budget > 0:
            raise ValueError(f"cell_budget is {self.cell_budget}; expected more than 0 seconds")
        for candidate in self.candidates:
            candidate.layers(self.settings.layers)

    @property
    def command(self) -> str:
        """The command line that does this."""
        words = ["primal", "bench", self.settings.what]
        words += ["--attention", ",".join(candidate.text for candidate in self.candidates)]
        words += ["--lengths", show_lengths(self.lengths), *self.settings.words()]
        return shlex.join([*words, *command_words({"cell_budget": f"{self.cell_budget:g}"})])


def make_plan(
    what: str = "block",
    attention: str | None = None,
    lengths: str | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    cell_budget: float | None = None,
    **given: Any,
) -> Plan:
    """A plan from words, as a command line has them: everything is compared unless `attention` says
    what, with `options` of attentions by name. A task of the arena has a length, a batch size and
    a rank, which hold unless `given`; a setting that is None is not given."""
    usual: dict[str, Any] = {}
    if what in ARENA:
        task = arena_task(what)
        lengths = str(task.padded_length) if lengths is None else lengths
        usual = {"batch_size": task.plan.batch_size, "rank": task.plan.primalformer.rank}
    settings = Settings(what=what, **usual | {n: v for n, v in given.items() if v is not None})
    candidates = choose_candidates(attention, default_candidates, options)
    return Plan(
        settings,
        with_references(candidates),
        parse_lengths(LENGTHS if lengths is None else lengths),
        CELL_BUDGET if cell_budget is None else cell_budget,
    )


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
