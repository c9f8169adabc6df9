"""The lines of a filled table: the paper's figure, ours, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..train.config import EngineConfig
from ..train.sweep.store import Outcome, key_of
from .cells import Cell
from .decisions import not_d4rl
from .paper_tables import Figure, PaperTable
from .verdict import Estimate, Verdict, average, estimate, judge, margin

NO_TIME, NO_VERDICT = "no time yet", "no verdict"
NOT_AMONG = "not among the published runs"
ONE_SEED = "a score of one seed has no interval; expected two seeds or more"
QUICK_REASON = "quick settings, whose figures mean nothing"


@dataclass(frozen=True)
class Line:
    """A cell, filled or not: then `why` says why. `paper` is the figure that is compared with."""

    row: str
    column: str
    printed: str
    paper: float
    ours: Estimate | None
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0
    missing: tuple[str, ...] = ()  # the seeds that have no result, with the reasons

    @property
    def unfinished(self) -> bool:
        """Whether a later call resumes it."""
        states = (self.why, *(seed.partition(": ")[2] for seed in self.missing))
        return any(one.startswith((NO_TIME, "paused")) for one in states)

    @property
    def state(self) -> str:
        """The verdict, or why there is none: without a figure, or in spite of one."""
        return NO_VERDICT if self.verdict == "not run" and self.ours is not None else self.verdict

    @property
    def difference(self) -> float | None:
        """None where there is nothing to compare, or where our figure means nothing."""
        if self.ours is None or self.why == QUICK_REASON:
            return None
        return self.ours.mean - self.paper


def trained_lines(
    found: PaperTable,
    cells: Sequence[Cell],
    seeds: Sequence[int] | None,
    outcomes: Mapping[str, Outcome],
    *,
    quick: bool = False,
) -> list[Line]:
    """The lines of cells that training fills, then those of the averages that are complete; without
    seeds, those of all seeds that are known."""
    lines = [_line(found, cell, seeds, outcomes, quick) for cell in cells]
    return lines + _averages(found, lines)


def _line(
    found: PaperTable,
    cell: Cell,
    seeds: Sequence[int] | None,
    outcomes: Mapping[str, Outcome],
    quick: bool,
) -> Line:
    figure = cell.figure
    empty = Line(cell.row, cell.column, figure.printed, figure.value, None, "not run", cell.why)
    if cell.config is None:
        return empty
    if seeds is None and not (seeds := _known_seeds(cell.config, outcomes)):
        return dataclasses.replace(empty, why=NOT_AMONG)
    runs = {seed: outcome_of(cell.config, seed, outcomes) for seed in seeds}
    ended = [one for one in runs.values() if one is not None and one.status == "finished"]
    missing = tuple(f"seed {seed}: {state(one)}" for seed, one in runs.items() if one not in ended)
    if not ended:
        return dataclasses.replace(empty, why=state(next(iter(runs.values()))), missing=missing)
    accuracies = [one.accuracy for one in ended if one.accuracy is not None]
    cases = [one.cases for one in ended if one.cases is not None]
    ours = estimate(accuracies, min(cases, default=None))
    why = QUICK_REASON if quick else _not_judged(ended)
    return dataclasses.replace(
        empty,
        ours=ours,
        verdict="not run" if why else _judge(found, figure, ours),
        why=why,
        seconds=sum(one.seconds for one in ended),
        missing=missing,
    )


def _known_seeds(config: EngineConfig, outcomes: Mapping[str, Outcome]) -> list[int]:
    """Those of the outcomes that this configuration has."""
    every = sorted({int(one.settings["seed"]) for one in outcomes.values()})
    return [seed for seed in every if outcome_of(config, seed, outcomes) is not None]


def outcome_of(config: EngineConfig, seed: int, outcomes: Mapping[str, Outcome]) -> Outcome | None:
    """What became of the run of a configuration with a seed; None if it was not done."""
    return outcomes.get(key_of(dataclasses.replace(config, seed=seed)))


def _not_judged(ended: Sequence[Outcome]) -> str:
    """Why a figure of these runs gets no verdict; nothing if it gets one."""
    if any(one.cases is not None for one in ended):
        return ""
    others = [why for one in ended if (why := not_d4rl(one.data))]
    if others:
        return others[0]
    return ONE_SEED if len(ended) < 2 else ""


def state(outcome: Outcome | None) -> str:
    """What became of a run that has no result."""
    if outcome is None:
        return NO_TIME
    return f"{outcome.status}: {outcome.reason}"


def _judge(found: PaperTable, figure: Figure, ours: Estimate) -> Verdict:
    return judge(ours, figure.value, margin(figure), found.better)


def _averages(found: PaperTable, lines: Sequence[Line]) -> list[Line]:
    """The printed averages whose cells were all asked for."""
    made = []
    for name, figure in found.averages.items():
        across = found.average_over == "columns"
        parts = [line for line in lines if (line.row if across else line.column) == name]
        if len(parts) < len(found.columns if across else found.rows):
            continue
        row, column = (name, "average") if across else ("average", name)
        known = [part.ours for part in parts if part.ours is not None]
        unjudged = next((part.why for part in parts if part.verdict == "not run"), None)
        ours, seconds = None, 0.0
        verdict: Verdict = "not run"
        if len(known) < len(parts):
            unjudged = f"{len(known)} of {len(parts)} cells have a result"
        else:
            ours, seconds = average(known), sum(part.seconds for part in parts)
            if unjudged is None:
                verdict = _judge(found, figure, ours)
        line = Line(
            row, column, figure.printed, figure.value, ours, verdict, unjudged or "", seconds
        )
        made.append(line)
    return made
