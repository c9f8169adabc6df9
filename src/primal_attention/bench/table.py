"""The results for people: a table for each quantity, and the reasons of what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..runs.tables import to_markdown
from .results import GROWING, Cell, Results, short

FIELDS = {"seconds": 1e3, "over_floor": 1.0, "over_softmax": 1.0, "peak_mb": 1.0}
TITLES = {
    "seconds": "Time, ms",
    "over_floor": "Time in multiples of the floor (the block's own projections)",
    "over_softmax": "Time in multiples of softmax",
    "peak_mb": "Peak memory above inputs and parameters, MB",
}
SKIPPED = {"time": "too slow", "memory": "too large", "error": "error"}


@dataclass(frozen=True)
class Summary:
    """What came out of a benchmark. `tables` are lines of cells by title, the first line a header;
    `missing` are reasons of cells that were not measured, `document` is all of it as JSON."""

    title: str
    command: str
    about: str
    tables: Mapping[str, Sequence[Sequence[str]]]
    missing: Sequence[str]
    document: Mapping[str, Any]
    measured: bool
    legend: str = ""

    def markdown(self) -> str:
        """All of it, with the command and the machine."""
        blocks = [f"**{self.title}**", f"    {self.command}", self.about]
        blocks += [self.legend] if self.legend else []
        for title, (head, *rows) in self.tables.items():
            blocks += [f"**{title}**", to_markdown(head, rows, numbers=True)]
        if self.missing:
            blocks += ["**Not measured**", "\n".join(f"- {note}" for note in self.missing)]
        return "\n\n".join(blocks) + "\n"


def machine(results: Results) -> str:
    """Where a benchmark ran, and with what."""
    place = results.environment
    return (
        f"{place['processor']}, {results.settings.threads} of {place['cores']} cores, torch "
        f"{place['torch']}, primal-attention {place['primal-attention']}."
    )


def summary(results: Results) -> Summary:
    return Summary(
        title=results.settings.title,
        command=results.command,
        about=f"{machine(results)} {_times(results)} medians over {results.settings.repeats} "
        "interleaved rounds, ratios medians of those within a round; every memory figure is from a "
        "process of its own. The exponent of growth is fitted over the upper half of the lengths.",
        tables={title: quantity_table(results, quantity) for quantity, title in TITLES.items()},
        missing=reasons(results),
        document=results.to_dict(),
        measured=any(cell.status == "measured" for cell in results.cells.values()),
    )


def _times(results: Results) -> str:
    alone = results.settings.threads == 1 and results.settings.device == "cpu"
    return "Times are CPU time," if alone else "Times are"


def quantity_table(results: Results, quantity: str) -> list[list[str]]:
    """A header, then a row for each candidate: a column for each length, and the exponent of growth
    where it is time or memory."""
    lines = [["", *(f"N = {length}" for length in results.lengths)]]
    for name in results.candidates:
        cells = [results.cells.get((name, length)) for length in results.lengths]
        lines.append([name, *(cell_text(cell, quantity) for cell in cells)])
    for growing in GROWING:
        if growing == quantity:
            exponents = [results.exponent(name, growing) for name in results.candidates]
            column = ["exponent", *("" if one is None else f"{one:.2f}" for one in exponents)]
            lines = [[*line, last] for line, last in zip(lines, column, strict=True)]
    return lines


def cell_text(cell: Cell | None, quantity: str) -> str:
    if cell is None:
        return ""
    value = getattr(cell, quantity)
    if value is not None:
        return short(FIELDS[quantity] * value)
    # a measured cell lacks a ratio where the reference was not measured
    return "–" if cell.status == "measured" else SKIPPED[cell.status]


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
