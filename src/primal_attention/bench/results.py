"""The figures of a benchmark, and the folder they live in.

results.json      settings, environment, command, and every cell; written after every figure
results.csv       the cells as a table for other programs
table.md          tables for people, see table.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..runs.errors import RunError
from ..runs.files import explained, read_json, write_json
from ..runs.tables import to_csv
from .growth import growth_exponent
from .settings import Settings

FILE = "results.json"
FORMAT = 1
Status = Literal["measured", "time", "memory", "error"]
Growing = Literal["seconds", "peak_mb"]  # the quantities with an exponent of growth
GROWING: tuple[Growing, ...] = get_args(Growing)


@dataclass(frozen=True)
class Cell:
    """One candidate at one length. Whatever is not "measured" has a reason: it would take too much
    time or memory, or it raised. `rounds` are the seconds of each round and `seconds` their median;
    the ratios are medians of those within a round. `beside` are the seconds of materialised softmax
    in the same rounds, where it took part: its own cell may be of earlier ones."""

    candidate: str
    length: int
    status: Status
    reason: str | None = None
    seconds: float | None = None
    over_floor: float | None = None
    over_softmax: float | None = None
    peak_mb: float | None = None
    rounds: tuple[float, ...] = ()
    over_materialised: float | None = None
    beside: tuple[float, ...] = ()

    def __str__(self) -> str:
        start = f"N = {self.length}  {self.candidate}  "
        if self.seconds is None or self.peak_mb is None:
            return f"{start}{self.status}: {self.reason}"
        floor = "" if self.over_floor is None else f"  {short(self.over_floor)} x floor"
        return f"{start}{short(1e3 * self.seconds)} ms{floor}  {short(self.peak_mb)} MB"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cell:
        lists = {"rounds": tuple(fields["rounds"]), "beside": tuple(fields.get("beside", ()))}
        return cls(**{**fields, **lists})


@dataclass
class Results:
    """All cells of a benchmark, {(candidate, length): cell}, in the order of its plan."""

    settings: Settings
    candidates: tuple[str, ...]
    lengths: tuple[int, ...]
    cell_budget: float
    command: str
    environment: dict[str, Any]
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)

    def series(self, candidate: str, quantity: Growing) -> dict[int, float]:
        """A quantity against the length, where it is known."""
        found = {}
        for length in self.lengths:
            cell = self.cells.get((candidate, length))
            value = None if cell is None else getattr(cell, quantity)
            if value is not None:
                found[length] = float(value)
        return found

    def exponent(self, candidate: str, quantity: Growing) -> float | None:
        """The exponent of growth over the upper lengths."""
        series = self.series(candidate, quantity)
        return growth_exponent(list(series), list(series.values()))

    def to_dict(self) -> dict[str, Any]:
        order = [(name, length) for name in self.candidates for length in self.lengths]
        rest = [key for key in self.cells if key not in order]  # of an earlier, wider plan
        return {
            "format": FORMAT,
            "command": self.command,
            "settings": self.settings.to_dict(),
            "budget": self.cell_budget,
            "environment": self.environment,
            "candidates": list(self.candidates),
            "lengths": list(self.lengths),
            "exponents": {
                name: {quantity: self.exponent(name, quantity) for quantity in GROWING}
                for name in self.candidates
            },
            "cells": [
                dataclasses.asdict(self.cells[key]) for key in order + rest if key in self.cells
            ],
        }

    def write(self, folder: Path) -> None:
        with explained(f"write into {folder}"):
            write_json(folder / FILE, self.to_dict())

    def csv(self) -> str:
        columns = [f.name for f in dataclasses.fields(Cell) if f.name not in ("rounds", "beside")]
        order = ((name, length) for name in self.candidates for length in self.lengths)
        cells = (self.cells[key] for key in order if key in self.cells)
        return to_csv(columns, ([getattr(cell, name) for name in columns] for cell in cells))


def short(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"


def read_results(folder: Path | str) -> Results:
    """The results in a folder; a RunError says what is wrong with them."""
    path = Path(folder) / FILE
    found = read_json(path)
    try:
        if found["format"] != FORMAT:
            raise RunError(f"{path} has format {found['format']!r}; expected {FORMAT}")
        cells = [Cell.from_dict(fields) for fields in found["cells"]]
        return Results(
            settings=Settings.from_dict(found["settings"]),
            candidates=tuple(found["candidates"]),
            lengths=tuple(found["lengths"]),
            cell_budget=found["budget"],
            command=found["command"],
            environment=found["environment"],
            cells={(cell.candidate, cell.length): cell for cell in cells},
        )
    except (KeyError, TypeError) as error:
        raise RunError(f"{path} is not the result of a benchmark: {error!r}") from error
