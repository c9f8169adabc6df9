"""What commands print on stdout: tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..attention import AttentionInfo
    from ..tasks import DataStatus, Task
    from ..tasks.rl import RLTask
    from ..train import RunResult, SeedsResult

FILE_WIDTH = 240  # of lines that do not go to a terminal


def console(*, stderr: bool = False) -> Console:
    """stdout or stderr; lines are broken on terminals only."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=FILE_WIDTH)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_result(result: RunResult, next_command: str) -> None:
    """The outcome of one run, with what its accuracy is."""
    rows = {
        "accuracy": f"{_percent(result.accuracy)}  {result.label}",
        "protocol": f"{result.protocol}, epoch {result.epoch} was chosen",
        "model": f"{result.parameters:,} parameters",
        "cost": f"{result.seconds:.1f} s, peak memory {result.peak_memory_mb:.0f} MB",
    }
    if result.cut:
        rows["note"] = f"test cases cut to the model's length: {result.cut}"
    show_rows(rows | {"run": str(result.run), "next": next_command})


def show_seeds(outcome: SeedsResult, next_command: str) -> None:
    """The outcome of a run with several seeds."""
    protocols = dict.fromkeys(result.protocol for result in outcome.results.values())
    mean = _percent(outcome.mean)
    if outcome.deviation is not None and outcome.interval is not None:
        low, high = max(outcome.interval[0], 0.0), min(outcome.interval[1], 1.0)
        mean += f" ± {100 * outcome.deviation:.1f}, 95 % interval of the mean {100 * low:.1f}"
        mean += f" to {_percent(high)}"
    each = (f"{seed}: {_percent(result.accuracy)}" for seed, result in outcome.results.items())
    rows = {
        "accuracy": mean,
        "": outcome.label,
        "protocol": ", ".join(protocols),
        "seeds": ", ".join(each),
        "cost": f"{sum(r.seconds for r in outcome.results.values()):.1f} s",
        "run": str(outcome.run),
        "next": next_command,
    }
    rows |= {f"seed {seed}": f"failed: {reason}" for seed, reason in outcome.failed.items()}
    show_rows(rows)


def show_rows(rows: dict[str, str]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows.items():
        # Text, not str: a path may look like markup
        grid.add_row(name, Text(text, style="bold" if name == "accuracy" else ""))
    console().print(grid, highlight=False)


# -- data ----------------------------------------------------------------------------------------


def data_json(found: Sequence[DataStatus]) -> list[dict[str, Any]]:
    return [
        {
            "task": status.task,
            "present": status.complete,
            "facts": status.facts,
            "places": dict(status.places),
            "missing": list(status.missing),
            "how_to_get": status.how_to_get,
        }
        for status in found
    ]


def show_data(found: Sequence[DataStatus]) -> None:
    table = new_table("set", "here", "facts", "where")
    for status in found:
        state = "yes" if status.complete else "partly" if status.places else "no"
        folders = dict.fromkeys(str(Path(place).parent) for place in status.places.values())
        table.add_row(status.task, state, status.facts, "\n".join(folders))
    console().print(table, highlight=False)
    missing = [status for status in found if not status.complete]
    if missing:
        # of these the sentences differ in the name only; --json has them all
        families = [status.task.split("/")[0] for status in missing]
        for i, status in enumerate(missing):
            alike = families[i] in ("uea", "rl")
            if alike and families.index(families[i]) < i:
                continue
            several = alike and families.count(families[i]) > 1
            rest = "; the others in the same way" if several else ""
            sentence = f"{status.task}: {status.how_to_get}{rest}"
            console().print(f"\n{sentence}", highlight=False, markup=False)


# -- list ----------------------------------------------------------------------------------------

ABILITIES = ("causal", "cross", "streaming", "any_length", "pair_masks")


def list_json(
    attentions: Sequence[AttentionInfo], tasks: Sequence[Task | RLTask]
) -> dict[str, Any]:
    return {
        "attentions": [
            {
                "name": info.name,
                "cost": info.cost,
                **{ability: getattr(info, ability) for ability in ABILITIES},
                "options": list(info.options),
                "paper": info.paper,
            }
            for info in attentions
        ],
        "tasks": [
            {"name": task.name, "description": task.description, "recipes": list(task.recipes)}
            for task in tasks
        ],
    }


def show_list(attentions: Sequence[AttentionInfo], tasks: Sequence[Task | RLTask]) -> None:
    table = new_table("attention", "time", *(a.replace("_", " ") for a in ABILITIES), "paper")
    for info in attentions:
        able = ("yes" if getattr(info, ability) else "no" for ability in ABILITIES)
        table.add_row(info.name, info.cost, *able, info.paper)
    console().print(table, highlight=False)
    table = new_table("task", "recipes", "description")
    for task in tasks:
        table.add_row(task.name, ", ".join(task.recipes), task.description)
    console().print(table, highlight=False)
    from ..kernels.native.library import state

    console().print(f"\n{state()}", highlight=False, markup=False)


def new_table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
