"""`primal bench lra`: all tasks of the Long-Range Arena in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..bench import parse_candidates, parse_lengths
from ..bench.arena import BUDGET, ArenaPlan, arena_candidates, read_arena, run_arena
from ..bench.arena_table import (
    LEGEND,
    arena_cells,
    arena_json,
    header,
    reasons,
    rows,
    titles,
)
from . import FAILED
from .bench_run import show_grid, watched
from .settings import UsageError
from .show import console, show_json, show_rows


def arena_plan(
    attention: str | None,
    length: str | None,
    *,
    budget: float | None,
    batch: int | None,
    rank: int | None,
    repeats: int | None,
    **common: Any,
) -> ArenaPlan:
    """The plan that a command line asks for."""
    try:
        lengths = [None] if length is None else parse_lengths(length)
        if len(lengths) > 1:
            raise ValueError(f"the length is {length!r}; expected one number, or none: the tasks'")
        plan = ArenaPlan(
            arena_candidates() if attention is None else parse_candidates(attention),
            length=lengths[0],
            batch=batch,
            rank=rank,
            budget=BUDGET if budget is None else budget,
            common=common if repeats is None else {**common, "repeats": repeats},
        )
        plan.plans()
    except ValueError as error:
        raise UsageError(str(error)) from error
    return plan


def measure_arena(plan: ArenaPlan, out: Path | None, *, quiet: bool, as_json: bool) -> None:
    """Run the plan and print what came out."""
    folder = watched(lambda watch: run_arena(plan, out, watch=watch), plan.command, quiet=quiet)
    found = read_arena(folder, plan.tasks)
    cells = arena_cells(found)
    if as_json:
        show_json({"folder": str(folder), **arena_json(found, plan.command)})
    else:
        for quantity, title in titles(found).items():
            show_grid(title, header(cells), rows(cells, quantity))
        for text in (*reasons(cells), LEGEND.replace("`", "")):
            console().print(text, highlight=False, markup=False, soft_wrap=True)
        show_rows({"results": str(folder)})
    if not any(cell.status == "measured" for cell in cells):
        raise typer.Exit(FAILED)
