"""Lines of cells as text: CSV for programs, Markdown for pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and its rows; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines whose columns begin at the same places."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def to_markdown(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False
) -> str:
    """A table without a last line break; `numbers` stand right of a column of names."""
    rule = ["---", *["---:" if numbers else "---"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))
