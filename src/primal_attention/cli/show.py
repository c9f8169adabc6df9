"""What commands print on stdout: tables for people, JSON for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..attention import AttentionInfo
    from ..tasks import DataStatus, Task

FILE_WIDTH = 240  # of lines that do not go to a terminal


def console(*, stderr: bool = False) -> Console:
    """stdout or stderr; lines are broken on terminals only."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=FILE_WIDTH)


def rank_note(rank: int, width: int, heads: int) -> str:
    """A sentence where the rank of primal layers is not below the width of a head; else nothing."""
    if rank < width // heads:
        return ""
    return f"rank = {rank} is not below the width of a head, {width} / {heads}: it reduces nothing."


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_rows(rows: dict[str, str]) -> None:
    """Names and texts, two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows.items():
        # Text, not str: a path may look like markup
        grid.add_row(name, Text(text, style="bold" if name == "accuracy" else ""))
    console().print(grid, highlight=False)


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    numbers: bool = False,
    styles: Iterable[str] = (),
) -> None:
    """A table that folds its cells where a terminal is narrow, and an empty line. `numbers` stand
    right of a column of names; `styles` are those of rows."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numbers and i else "left"
        table.add_column(column, justify=justify, no_wrap=numbers and not i, overflow="fold")
    for row, style in zip(rows, chain(styles, repeat("")), strict=False):
        table.add_row(*map(Text, row), style=style)
    out = console()
    if title:
        out.print(title, style="bold", highlight=False, markup=False)
    out.print(table, highlight=False)
    out.print()


def show_text(*texts: str, style: str = "") -> None:
    """Lines of text; empty ones are left out."""
    for text in filter(None, texts):
        console().print(text, style=style, highlight=False, markup=False, soft_wrap=True)


# -- data ----------------------------------------------------------------------------------------


def data_json(found: Sequence[DataStatus]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(status), "present": status.complete} for status in found]


def show_data(found: Sequence[DataStatus]) -> None:
    rows = []
    for status in found:
        state = "yes" if status.complete else "partly" if status.places else "no"
        folders = dict.fromkeys(str(Path(place).parent) for place in status.places.values())
        rows.append([status.task, state, status.facts, "\n".join(folders)])
    show_table(["set", "here", "facts", "where"], rows)
    missing = [status for status in found if not status.complete]
    # of these the sentences differ in the name only; --json has them all
    families = [status.task.split("/")[0] for status in missing]
    for i, status in enumerate(missing):
        alike = families[i] in ("uea", "rl")
        if alike and families.index(families[i]) < i:
            continue
        several = alike and families.count(families[i]) > 1
        rest = "; the others in the same way" if several else ""
        sentence = f"{status.task}: {status.how_to_get}{rest}\n"
        console().print(sentence, highlight=False, markup=False)


# -- list ----------------------------------------------------------------------------------------

ABILITIES = ("causal", "cross", "streaming", "any_length", "pair_masks")


def list_json(attentions: Sequence[AttentionInfo], tasks: Sequence[Task]) -> dict[str, Any]:
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


def show_list(attentions: Sequence[AttentionInfo], tasks: Sequence[Task]) -> None:
    from ..kernels.native.library import state

    words = {True: "yes", False: "no"}
    show_table(
        ["attention", "time", *(ability.replace("_", " ") for ability in ABILITIES), "paper"],
        [
            [info.name, info.cost, *(words[getattr(info, a)] for a in ABILITIES), info.paper]
            for info in attentions
        ],
    )
    rows = [[task.name, ", ".join(task.recipes), task.description] for task in tasks]
    show_table(["task", "recipes", "description"], rows)
    show_text(state())
