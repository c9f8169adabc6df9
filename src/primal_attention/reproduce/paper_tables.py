"""The paper's tables as it prints them, with what is known about their figures.

from primal_attention.reproduce.paper_tables import table

table("table1").figure("JapaneseVowels", "Primal.").value  # 98.4
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from ..names import unknown

NAMES = (*(f"table{n}" for n in range(1, 10)), "figure1")


@dataclass(frozen=True)
class Figure:
    """A figure as printed: `value` with its number of decimals, and where the paper has them the
    deviation over seeds (83.8±3.3) or the factor over the Transformer (68.4 (2.8×)). A statement
    that holds has the value 1."""

    printed: str
    value: float
    decimals: int
    deviation: float | None = None
    factor: float | None = None

    @property
    def rounding(self) -> float:
        """The most that the printed value differs from the exact one by rounding."""
        return 0.5 * 10.0**-self.decimals

    @classmethod
    def parse(cls, printed: str) -> Figure:
        if printed == "yes":
            return cls(printed, 1.0, 0)
        number = r"(\d+(?:\.(\d+))?)"
        found = re.fullmatch(rf"{number}(?:±(\d+\.\d+))?(?: \((\d+(?:\.\d+)?)×\))?", printed)
        if found is None:
            raise ValueError(f"the figure is {printed!r}; expected one like 98.4 or 83.8±3.3")
        value, decimals, deviation, factor = found.groups()
        return cls(
            printed,
            float(value),
            len(decimals or ""),
            None if deviation is None else float(deviation),
            None if factor is None else float(factor),
        )


@dataclass(frozen=True)
class Note:
    """What a reader must know about some figures; without rows and columns, about all."""

    text: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def applies(self, row: str, column: str) -> bool:
        in_row = not self.rows or any(matches(name, row) for name in self.rows)
        return in_row and (not self.columns or column in self.columns)

    @property
    def general(self) -> bool:
        return not self.rows and not self.columns


@dataclass(frozen=True)
class Reference:
    """The average of a method that is not in the paper, on the same sets."""

    name: str
    average: float
    source: str
    protocol: str


@dataclass(frozen=True)
class PaperTable:
    """`averages` are printed at the end of each column (`average_over` "rows") or of each row
    ("columns"). `read_as` gives the true name of columns that the paper mislabels."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    figures: Mapping[tuple[str, str], Figure]
    average_over: Literal["rows", "columns"] | None
    averages: Mapping[str, Figure]
    notes: tuple[Note, ...]
    references: tuple[Reference, ...]
    read_as: Mapping[str, str]

    def figure(self, row: str, column: str) -> Figure:
        """What the paper prints for a row and a column."""
        if row not in self.rows:
            raise ValueError(unknown(f"row of {self.name}:", row, self.rows))
        if column not in self.columns:
            raise ValueError(unknown(f"column of {self.name}:", column, self.columns))
        return self.figures[row, column]

    def select(self, part: str | None) -> list[tuple[str, str]]:
        """The (row, column) pairs of a part: a row, a column, or the rows that begin with it, as
        in "JapaneseVowels" of table 6; None is everything."""
        every = [(row, column) for row in self.rows for column in self.columns]
        if part is None:
            return every
        found = [(r, c) for r, c in every if matches(part, r) or part.lower() == c.lower()]
        if not found:
            raise ValueError(unknown(f"part of {self.name}:", part, [*self.rows, *self.columns]))
        return found


def matches(name: str, row: str) -> bool:
    """Whether a row is called so, or begins with this word: "ListOps" for "ListOps (2K)"."""
    name, row = name.lower(), row.lower()
    return row == name or row.startswith(f"{name} ")


@functools.cache
def table(name: str) -> PaperTable:
    """A table by name, "table1" to "table9" or "figure1"."""
    if name not in NAMES:
        raise ValueError(unknown("table", name, NAMES))
    text = (files(__package__) / "data" / f"{name}.json").read_text(encoding="utf-8")
    return _from_json(name, json.loads(text))


def _from_json(name: str, found: Mapping[str, Any]) -> PaperTable:
    rows: Mapping[str, Sequence[str]] = found["cells"]
    columns: Sequence[str] = found["columns"]
    average = found.get("average", {})
    ends = {"rows": columns, "columns": list(rows)}.get(average.get("over"), [])
    return PaperTable(
        name=name,
        title=found["title"],
        unit=found["unit"],
        better=found["better"],
        rows=tuple(rows),
        columns=tuple(columns),
        figures={
            (row, column): Figure.parse(printed)
            for row, cells in rows.items()
            for column, printed in zip(columns, cells, strict=True)
        },
        average_over=average.get("over"),
        averages=dict(zip(ends, map(Figure.parse, average.get("figures", [])), strict=True)),
        notes=tuple(
            Note(n["text"], tuple(n.get("rows", ())), tuple(n.get("columns", ())))
            for n in found.get("notes", ())
        ),
        references=tuple(
            Reference(**one, protocol=found["reference_protocol"])
            for one in found.get("references", ())
        ),
        read_as=found.get("read_as", {}),
    )
