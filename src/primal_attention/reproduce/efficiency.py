"""Table 3: time and memory of training steps, through the benchmark of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..bench import Plan, Results, Settings, Watch, parse_candidates, read_results, run_bench
from ..train.seeds import mean_interval
from .lines import QUICK_REASON, Line
from .paper_tables import Figure, table
from .verdict import Estimate, judge

TRANSFORMER = "softmax:materialised"
CANDIDATES: Mapping[str, str] = {
    "Trans.": TRANSFORMER,
    "Nyström.": "nystrom:landmarks=64",
    "Lin.": "linformer:projection=256",
    "Per.": "performer:features=256",
    "Re.": "reformer:hashes=2",
    "Primal.": "primal:data",
}
LENGTHS = {"ListOps": 2048, "Text": 4096, "Retrieval": 4096, "Image": 1024, "Pathfinder": 1024}
QUICK_LENGTHS = dict(zip(LENGTHS, (64, 128, 128, 32, 32), strict=True))
TOLERANCE = 0.1  # of a factor: other machines, other factors
CELL_SECONDS = 30.0


def measure(
    folder: Path, *, quick: bool = False, budget: float | None = None, watch: Watch | None = None
) -> Results:
    """Measure, or go on measuring, the encoders of Table 3: width 64, 2 heads, batches of one."""
    lengths = tuple(sorted(set((QUICK_LENGTHS if quick else LENGTHS).values())))
    count = len(CANDIDATES) * len(lengths)
    seconds = CELL_SECONDS if budget is None else min(CELL_SECONDS, budget / count)
    settings = Settings(
        what="encoder", mode="training", width=64, heads=2, rank=20, batch=1, threads=1,
        repeats=2 if quick else 5,
    )  # fmt: skip
    plan = Plan(settings, parse_candidates(",".join(CANDIDATES.values())), lengths, seconds)
    return read_results(run_bench(plan, folder, watch=watch))


def efficiency_lines(results: Results, part: str | None = None, *, quick: bool = False) -> list[
    Line
]:  # fmt: skip
    """The factors over the Transformer, ours next to the paper's.

    The factor of time is the mean over rounds of the benchmark, with Student's t-interval; that of
    memory is one measurement. Our Estimate is of the factor; a printed factor is reproduced within
    a tenth of it, since the machines differ.
    """
    found = table("table3")
    return [
        _line(row, column, found.figure(row, column), results, quick)
        for row, column in found.select(part)
    ]


def _line(row: str, column: str, figure: Figure, results: Results, quick: bool) -> Line:
    paper = figure.factor or 1.0
    why, ours = "", None
    if row not in CANDIDATES:
        why = "the benchmark measures encoders whose layers have the same attention"
    else:
        ours, why = _factor(row, column, results, QUICK_LENGTHS if quick else LENGTHS)
    if row == "Trans.":
        ours, why = None, "the unit of the factors"
    if ours is None or quick:
        return Line(row, column, figure.printed, paper, ours, "not run", why or QUICK_REASON)
    return Line(row, column, figure.printed, paper, ours, judge(ours, paper, TOLERANCE * paper))


def _factor(
    row: str, column: str, results: Results, lengths: Mapping[str, int]
) -> tuple[Estimate | None, str]:
    kind, name = column.split()
    cells = [results.cells.get((c, lengths[name])) for c in (TRANSFORMER, CANDIDATES[row])]
    for cell in cells:
        if cell is None or cell.status != "measured":
            reason = "not measured" if cell is None else f"{cell.status}: {cell.reason}"
            return None, f"{CANDIDATES[row] if cell is cells[1] else TRANSFORMER}: {reason}"
    base, own = (cell for cell in cells if cell is not None)
    if kind == "Memory":
        factor = (base.peak_mb or 0.0) / max(own.peak_mb or 0.0, 1e-9)
        return Estimate(factor, factor, factor), ""
    ratios = [a / b for a, b in zip(base.rounds, own.rounds, strict=False)]
    mean, deviation, interval = mean_interval(ratios)
    low, high = interval or (mean, mean)
    return Estimate(mean, low, high, len(ratios), deviation), ""
