"""The results as Markdown: a table for each quantity, and the reasons of what is missing."""

from __future__ import annotations

from pathlib import Path

from ..runs.files import explained, write_bytes
from .results import GROWING, Cell, Results

FIELDS = {"seconds": 1e3, "over_floor": 1.0, "over_softmax": 1.0, "peak_mb": 1.0}
TITLES = {
    "seconds": "Time, ms",
    "over_floor": "Time in multiples of the floor (the unavoidable matrix products)",
    "over_softmax": "Time in multiples of softmax",
    "peak_mb": "Peak memory above inputs and parameters, MB",
}
SKIPPED = {"time": "too slow", "memory": "too large", "error": "error"}


def quantity_rows(results: Results, quantity: str) -> list[list[str]]:
    """The body of a table: a row for each candidate, a column for each length, and the exponent of
    growth where it is time or memory."""
    rows = []
    for name in results.candidates:
        cells = [results.cells.get((name, length)) for length in results.lengths]
        row = [name, *(cell_text(cell, quantity) for cell in cells)]
        for growing in GROWING:
            if growing == quantity:
                exponent = results.exponent(name, growing)
                row.append("" if exponent is None else f"{exponent:.2f}")
        rows.append(row)
    return rows


def header(results: Results, quantity: str) -> list[str]:
    lengths = [f"N = {length}" for length in results.lengths]
    return ["", *lengths, *(["exponent"] if quantity in GROWING else [])]


def cell_text(cell: Cell | None, quantity: str) -> str:
    if cell is None:
        return ""
    value = getattr(cell, quantity)
    if value is not None:
        return short(FIELDS[quantity] * value)
    # a measured cell lacks a ratio where the reference was not measured
    return "–" if cell.status == "measured" else SKIPPED[cell.status]


def short(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"


def reasons(results: Results) -> list[str]:
    """A line for each cell that is not measured; equal ones of several lengths together."""
    lines: dict[tuple[str, str], list[int]] = {}
    for name in results.candidates:
        for length in results.lengths:
            cell = results.cells.get((name, length))
            if cell is None or cell.reason is None:
                continue
            if cell.reason.startswith("as at N = ") and lines:
                lines[next(reversed(lines))].append(length)
            else:
                line = name, f"{SKIPPED[cell.status]}: {cell.reason}"
                lines.setdefault(line, []).append(length)
    return [f"{n} at N = {', '.join(map(str, at))}: {text}" for (n, text), at in lines.items()]


def markdown(results: Results) -> str:
    """All of it, with the command and the machine."""
    place = results.environment
    blocks = [
        f"**{results.settings.title}**",
        f"    {results.command}",
        f"{place['processor']}, {results.settings.threads} of {place['cores']} cores, torch "
        f"{place['torch']}, primal-attention {place['primal-attention']}. Times are medians over "
        f"{results.settings.repeats} interleaved rounds, ratios medians of those within a round; "
        "every memory figure is from a process of its own. The exponent of growth is fitted over "
        "the upper half of the lengths.",
    ]
    for quantity, title in TITLES.items():
        lines = [_row(header(results, quantity)), _row(_rule(results, quantity))]
        lines += [_row(row) for row in quantity_rows(results, quantity)]
        blocks += [f"**{title}**", "\n".join(lines)]
    if notes := reasons(results):
        blocks += ["**Not measured**", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(blocks) + "\n"


def write_table(results: Results, folder: Path) -> Path:
    path = folder / "table.md"
    with explained(f"write {path}"):
        write_bytes(path, markdown(results).encode())
    return path


def _rule(results: Results, quantity: str) -> list[str]:
    return ["---", *("---:" for _ in header(results, quantity)[1:])]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
