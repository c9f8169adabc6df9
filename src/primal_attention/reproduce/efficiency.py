"""Table 3: time and memory of training steps, through the benchmark of the Long-Range Arena."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from ..bench import Results, Watch, parse_candidates
from ..bench.arena import ArenaPlan, read_arena, run_arena
from ..bench.candidates import MATERIALISED
from .lines import NO_TIME, QUICK_REASON, Line
from .paper_tables import Figure, table
from .verdict import Estimate, estimate, judge

CANDIDATES: Mapping[str, str] = {
    "Trans.": MATERIALISED,
    "Nyström.": "nystrom:landmarks=64",
    "Lin.": "linformer:projection=256",
    "Per.": "performer:features=256",
    "Re.": "reformer:hashes=2",
    "Primal.+Trans.": f"{MATERIALISED}+primal:data",
    "Primal.": "primal:data",
}
QUICK_LENGTH = 64
TOLERANCE = 0.1  # of a factor: other machines, other factors


def measure(
    folder: Path,
    part: str | None = None,
    *,
    quick: bool = False,
    budget: float | None = None,
    watch: Watch | None = None,
) -> dict[str, Results]:
    """Measure, or resume measuring, the models of Table 3 or of a part of it, by task: width 64, 2
    heads, an eighth of the paper's batches. Tasks that do not fit into `budget` seconds are left
    out."""
    cells = table("table3").select(part)
    tasks = tuple(dict.fromkeys(_task(column) for _, column in cells))
    names = [name for name in CANDIDATES if name in {"Trans.", *(row for row, _ in cells)}]
    plan = ArenaPlan(
        parse_candidates(",".join(CANDIDATES[name] for name in names)),
        tasks,
        length=QUICK_LENGTH if quick else None,
        batch_size=1 if quick else None,
        common={"repeats": 2, "threads": 1} if quick else {},
    )
    deadline = None if budget is None else time.time() + budget
    return read_arena(run_arena(plan, folder, watch=watch, deadline=deadline), tasks)


def efficiency_lines(
    results: Mapping[str, Results], part: str | None = None, *, quick: bool = False
) -> list[Line]:
    """The factors over the Transformer, ours next to the paper's, from the results of every task.

    The factor of time is the mean over rounds of the benchmark, with Student's t-interval; that of
    memory is one measurement. Our Estimate is of the factor; a printed factor is reproduced within
    a tenth of it, since the machines differ.
    """
    found = table("table3")
    return [
        _line(row, column, found.figure(row, column), results.get(_task(column)), quick)
        for row, column in found.select(part)
    ]


def _task(column: str) -> str:
    """ "Time ListOps" is about lra/listops."""
    return f"lra/{column.split()[1].lower()}"


def _line(row: str, column: str, figure: Figure, results: Results | None, quick: bool) -> Line:
    paper = figure.factor or 1.0
    ours, why = (None, NO_TIME) if results is None else _factor(row, column, results)
    if row == "Trans.":
        ours, why = None, "the unit of the factors"
    if ours is None or quick:
        return Line(row, column, figure.printed, paper, ours, "not run", why or QUICK_REASON)
    return Line(row, column, figure.printed, paper, ours, judge(ours, paper, TOLERANCE * paper))


def _factor(row: str, column: str, results: Results) -> tuple[Estimate | None, str]:
    names = (MATERIALISED, CANDIDATES[row])
    cells = [results.cells.get((name, results.lengths[0])) for name in names]
    for name, cell in zip(names, cells, strict=True):
        if cell is None or cell.status != "measured":
            reason = "not measured" if cell is None else f"{cell.status}: {cell.reason}"
            return None, f"{name}: {reason}"
    base, own = (cell for cell in cells if cell is not None)
    if column.startswith("Memory"):
        factor = (base.peak_mb or 0.0) / max(own.peak_mb or 0.0, 1e-9)
        return Estimate(factor, factor, factor), ""
    units = own.beside or base.rounds  # of the same rounds, also where the model was added later
    ratios = [a / b for a, b in zip(units, own.rounds, strict=False)]
    return estimate(ratios, unit=1.0), ""
