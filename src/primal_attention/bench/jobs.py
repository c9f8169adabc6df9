"""A benchmark as a command line asks for it: of one thing, or of all tasks of the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .arena import make_arena_plan, read_arena, run_arena
from .arena_table import arena_summary
from .plan import make_plan
from .results import read_results
from .run import run_bench
from .table import Summary, summary


@dataclass(frozen=True)
class Job:
    """`run(out, watch=...)` measures and returns the folder, of which `summary` tells."""

    command: str
    run: Callable[..., Path]
    summary: Callable[[Path], Summary]


def make_job(what: str, attention: str | None, lengths: str | None, **given: Any) -> Job:
    """What is measured, "lra" or as in `make_plan`, which says what is `given`."""
    if what == "lra":
        arena = make_arena_plan(attention, lengths, **given)
        return Job(
            arena.command,
            partial(run_arena, arena),
            lambda folder: arena_summary(read_arena(folder, arena.tasks), arena.command),
        )
    plan = make_plan(what, attention, lengths, **given)
    return Job(plan.command, partial(run_bench, plan), lambda folder: summary(read_results(folder)))
