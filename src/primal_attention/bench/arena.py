"""The paper's Table 3 on this machine: a training step of every model on every task of the
Long-Range Arena, as multiples of the Transformer.

from primal_attention.bench.arena import ArenaPlan, arena_candidates, run_arena

folder = run_arena(ArenaPlan(arena_candidates()))
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..grammar import parse_lengths
from ..runs.errors import RunError
from .candidates import (
    MATERIALISED,
    SOFTMAX,
    Candidate,
    choose_candidates,
    default_candidates,
    parse_candidate,
    with_references,
)
from .plan import Plan, Watch
from .results import FILE, Cell, Results, read_results
from .run import make_folder, open_meter, run_bench
from .settings import ARENA, Settings, command_words
from .steps import arena_task

# what the paper says about the peers on the arena
PEER_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "reformer": {"hashes": 2},
    "performer": {"features": 256},
    "linformer": {"projection": 256},
    "nystrom": {"landmarks": 64},
}
MIXED = tuple(f"{softmax}+primal:data" for softmax in (MATERIALISED, SOFTMAX))  # Primal.+Trans.
SHARE = 8  # a batch is the paper's divided by this, unless told: 4 or 32 sequences
CELL_BUDGET, REPEATS = 60.0, 3


@dataclass(frozen=True)
class ArenaPlan:
    """What to measure on which tasks. `length`, `batch_size` and `rank` are those of every task
    unless given: its padded length, an eighth of the paper's batch, the rank of its PrimalFormer.
    `cell_budget` is as in Plan, `common` are further settings of all tasks."""

    candidates: tuple[Candidate, ...]
    tasks: tuple[str, ...] = ARENA
    length: int | None = None
    batch_size: int | None = None
    rank: int | None = None
    cell_budget: float = CELL_BUDGET
    common: Mapping[str, Any] = field(default_factory=dict)

    def plans(self) -> dict[str, Plan]:
        """The benchmark of every task, with both kinds of softmax, which the ratios refer to."""
        candidates = with_references(self.candidates, (MATERIALISED, SOFTMAX))
        return {
            name: Plan(
                self._settings(name),
                candidates,
                (arena_task(name).padded_length if self.length is None else self.length,),
                self.cell_budget,
            )
            for name in self.tasks
        }

    def _settings(self, name: str) -> Settings:
        plan = arena_task(name).plan
        usual = {"batch_size": plan.batch_size // SHARE, "rank": plan.primalformer.rank}
        given = {"batch_size": self.batch_size, "rank": self.rank}
        usual |= {name: value for name, value in given.items() if value is not None}
        return Settings(**{"what": name, "repeats": REPEATS, **usual, **self.common})

    @property
    def command(self) -> str:
        """The command line that does this, for all tasks."""
        words = ["primal", "bench", "lra"]
        words += ["--attention", ",".join(candidate.text for candidate in self.candidates)]
        own = {"lengths": self.length, "batch_size": self.batch_size, "rank": self.rank}
        own |= {"pass" if name == "mode" else name: value for name, value in self.common.items()}
        return shlex.join([*words, *command_words(own | {"cell_budget": f"{self.cell_budget:g}"})])


def arena_candidates() -> tuple[Candidate, ...]:
    """The Transformer, both ways; Primal.+Trans. with either; and all attentions of the registry in
    all their kinds, with the paper's options. "none", which lets no position see another, is no
    model of the arena."""
    others = [c.text for c in default_candidates() if c.name not in ("", SOFTMAX, "none")]
    texts = [MATERIALISED, SOFTMAX, *MIXED]
    for text in others:
        own = PEER_OPTIONS.get(text, {})
        options = ",".join(f"{name}={value}" for name, value in own.items())
        texts.append(f"{text}:{options}" if options else text)
    return tuple(map(parse_candidate, texts))


def make_arena_plan(
    attention: str | None = None,
    lengths: str | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    batch_size: int | None = None,
    rank: int | None = None,
    cell_budget: float | None = None,
    **common: Any,
) -> ArenaPlan:
    """A plan from words, as in `make_plan`, but of one length."""
    numbers = [None] if lengths is None else parse_lengths(lengths)
    if len(numbers) > 1:
        raise ValueError(f"lengths is {lengths!r}; expected one number, or none: the tasks'")
    plan = ArenaPlan(
        choose_candidates(attention, arena_candidates, options),
        length=numbers[0],
        batch_size=batch_size,
        rank=rank,
        cell_budget=CELL_BUDGET if cell_budget is None else cell_budget,
        common={name: value for name, value in common.items() if value is not None},
    )
    plan.plans()  # which checks all of it
    return plan


def run_arena(
    plan: ArenaPlan,
    out: Path | str | None = None,
    *,
    watch: Watch | None = None,
    deadline: float | None = None,
) -> Path:
    """Measure, or go on measuring: a folder with the results of every task in a folder of its own,
    and the tables over all of them, lra.md, lra.csv and lra.json.

    With a deadline (of `time.time()`) small tasks come first, and those are left out that would not
    end by then at the pace of the others; the first with open cells is always measured."""
    from .arena_table import write_arena  # which reads what is written here

    plans, watch = plan.plans(), watch or Watch()
    folder = make_folder(out, "lra")
    sizes = {name: _size(own) for name, own in plans.items()}
    title = f"The models of {len(plans)} tasks of the Long-Range Arena"
    cells = sum(len(own.candidates) for own in plans.values())
    kept = {name: _kept(folder / _short(name), own) for name, own in plans.items()}
    watch.started(folder, title, cells, sum(kept.values()))
    left = {name: sizes[name] * (1 - kept[name] / len(plans[name].candidates)) for name in plans}
    done, whole, measured, began = 0.0, sum(sizes.values()), 0.0, time.time()
    order = list(plans) if deadline is None else sorted(plans, key=sizes.__getitem__)
    with open_meter(plans[order[0]].settings) as meter:
        for name in order:
            needed = (time.time() - began) * left[name] / measured if measured else 0.0
            if deadline is not None and needed and time.time() + needed > deadline:
                watch.part(f"{name}: left out, it would take about {needed / 60:.0f} min")
                continue
            watch.part(plans[name].settings.title)
            part = _Part(watch, name, done / whole, sizes[name] / whole)
            run_bench(plans[name], folder / _short(name), watch=part, meter=meter)
            done, measured = done + sizes[name], measured + left[name]
    write_arena(folder, read_arena(folder, plan.tasks), plan.command)
    return folder


def read_arena(folder: Path | str, tasks: tuple[str, ...] = ARENA) -> dict[str, Results]:
    """The results of the tasks that a folder has some of."""
    found = {
        name: read_results(Path(folder) / _short(name))
        for name in tasks
        if (Path(folder) / _short(name) / FILE).exists()
    }
    if not found:
        raise RunError(f"{folder} has no results; expected those of `primal bench lra`")
    return found


class _Part(Watch):
    """Passes on how one task goes, as a part of all."""

    def __init__(self, watch: Watch, name: str, before: float, share: float) -> None:
        self._watch, self._name = watch, _short(name)
        self._before, self._share = before, share

    def working(self, share: float, text: str) -> None:
        self._watch.working(self._before + self._share * share, f"{self._name}, {text}")

    def found(self, cell: Cell) -> None:
        self._watch.found(cell)


def _size(plan: Plan) -> float:
    """What a task takes, roughly in proportion."""
    pair = 2 if arena_task(plan.settings.what).pairs else 1
    return float(pair * plan.settings.batch_size * plan.lengths[0] ** 2)


def _kept(folder: Path, plan: Plan) -> int:
    if not (folder / FILE).exists():
        return 0
    cells = read_results(folder).cells
    every = [(candidate.text, plan.lengths[0]) for candidate in plan.candidates]
    return sum(key in cells and cells[key].status == "measured" for key in every)


def _short(name: str) -> str:
    return name.partition("/")[2]
