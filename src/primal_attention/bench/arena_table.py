"""Seconds per 1,000 steps and peak memory over all tasks of the arena, as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs.files import explained, write_json, write_texts
from ..runs.tables import to_csv
from .candidates import MATERIALISED, SOFTMAX
from .results import Results, short
from .table import SKIPPED, Summary, machine

LEGEND = (
    "`softmax:materialised` has its N x N matrices in memory, as the paper's Transformer had; "
    "`softmax` is the fused kernel of torch. `primal:data` is PrimalFormer; Primal.+Trans. is "
    "`softmax:materialised+primal:data`, and `softmax+primal:data` with the fused kernel."
)


ArenaCell = dict[str, Any]  # as lra.json and lra.csv have it


def arena_cells(found: Mapping[str, Results]) -> list[ArenaCell]:
    """The cells of all tasks, {task: results}: a model on a task. The ratios are how many times
    faster, or smaller, it is than softmax: of time the median of those within a round. What is not
    "measured" has a reason."""
    return [
        _cell(task, results, name)
        for task, results in found.items()
        for name in results.candidates
        if (name, results.lengths[0]) in results.cells
    ]


def _cell(task: str, results: Results, name: str) -> ArenaCell:
    length = results.lengths[0]
    cell = results.cells[name, length]
    peaks = [results.cells.get((unit, length)) for unit in (MATERIALISED, SOFTMAX)]
    materialised, fused = (None if unit is None else unit.peak_mb for unit in peaks)
    return {
        "task": task,
        "candidate": name,
        "length": length,
        "batch": results.settings.batch_size,
        "status": cell.status,
        "reason": cell.reason,
        "seconds_per_1k": None if cell.seconds is None else 1000 * cell.seconds,
        "faster_than_materialised": _over(1.0, cell.over_materialised),
        "faster_than_fused": _over(1.0, cell.over_softmax),
        "peak_mb": cell.peak_mb,
        "smaller_than_materialised": _over(materialised, cell.peak_mb),
        "smaller_than_fused": _over(fused, cell.peak_mb),
    }


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other is not None and other > 0 else None


def rows(cells: Sequence[ArenaCell], quantity: str) -> list[list[str]]:
    """The body of a table: a row for each model, a column for each task."""
    tasks = dict.fromkeys(cell["task"] for cell in cells)
    by_place = {(cell["candidate"], cell["task"]): cell for cell in cells}
    names = dict.fromkeys(cell["candidate"] for cell in cells)
    return [
        [name, *(cell_text(by_place.get((name, task)), quantity) for task in tasks)]
        for name in names
    ]


def header(cells: Sequence[ArenaCell]) -> list[str]:
    """A model's column, then "text: N = 4096, batch 4"."""
    heads = {
        c["task"]: f"{c['task'].partition('/')[2]}: N = {c['length']}, batch {c['batch']}"
        for c in cells
    }
    return ["", *heads.values()]


def cell_text(cell: ArenaCell | None, quantity: str) -> str:
    """ "136 (27.8×, 12.4×)": the value, and how much better than softmax in both forms."""
    if cell is None:
        return ""
    value = cell[quantity]
    if value is None:
        return SKIPPED.get(cell["status"], "–")
    kind = "faster" if quantity == "seconds_per_1k" else "smaller"
    ratios = [cell[f"{kind}_than_{unit}"] for unit in ("materialised", "fused")]
    told = ", ".join("–" if ratio is None else f"{short(ratio)}×" for ratio in ratios)
    return f"{short(value)} ({told})"


def reasons(cells: Sequence[ArenaCell]) -> list[str]:
    """A line for each cell that is not measured."""
    return [
        f"{cell['candidate']}, {cell['task']}: {SKIPPED[cell['status']]}: {cell['reason']}"
        for cell in cells
        if cell["reason"] is not None
    ]


def arena_summary(found: Mapping[str, Results], command: str) -> Summary:
    """Of all tasks, {task: results}."""
    cells, first = arena_cells(found), next(iter(found.values()))
    settings = first.settings
    work = "Training steps" if settings.mode == "training" else "Forward passes"
    titles = {
        "seconds_per_1k": f"Seconds per 1,000 {work.lower()} (times faster than softmax "
        "materialised, and than fused)",
        "peak_mb": "Peak memory above inputs and parameters, MB (times less than softmax "
        "materialised, and than fused)",
    }
    return Summary(
        title=f"{work} of the models of the Long-Range Arena: width {settings.width}, "
        f"{settings.heads} heads, {settings.dtype}",
        command=command,
        about=f"{machine(first)} Random tokens without padding, no dropout. Times are medians over "
        f"{settings.repeats} interleaved rounds, ratios medians of those within a round; every "
        "memory figure is from a process of its own.",
        tables={
            title: [header(cells), *rows(cells, quantity)] for quantity, title in titles.items()
        },
        missing=reasons(cells),
        document={
            "command": command,
            "environment": first.environment,
            "settings": {task: results.settings.to_dict() for task, results in found.items()},
            "cells": cells,
        },
        measured=any(cell["status"] == "measured" for cell in cells),
        legend=LEGEND,
    )


def write_arena(folder: Path, found: Mapping[str, Results], command: str) -> None:
    """Write lra.json, lra.csv and lra.md."""
    told = arena_summary(found, command)
    cells = arena_cells(found)
    head = list(cells[0]) if cells else []
    csv = to_csv(head, [list(cell.values()) for cell in cells])
    write_texts(folder, {"lra.csv": csv, "lra.md": told.markdown()})
    with explained(f"write into {folder}"):
        write_json(folder / "lra.json", told.document)
