"""Series in a table: what its columns are, and the cases that its rows make.

long   several rows a case, one for each position:   id, time, x, y, z, label
wide   a row for each case of one channel:           t0, t1, t2, ..., label
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import numpy as np

from ..base import DataError
from ..series import Floats
from .table import Row, Table, listed

TARGETS = ("target", "label", "class", "y")  # what a target is called where nobody says
NO_CHANNELS = ("id", "time", "timestamp", "date", "datetime")  # names that no channel should have


class Case(NamedTuple):
    """A series (length, channels) with the name that it has in its file, and its target."""

    name: str
    series: Floats
    target: str | None


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are; `wide` tables have one channel, whose positions are the
    columns `channels`. Without `channels` every other column is one."""

    target: str | None = None
    id: str | None = None
    time: str | None = None
    channels: tuple[str, ...] = ()
    wide: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "channels": list(self.channels)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**{**stored, "channels": tuple(stored["channels"])})

    def of(self, table: Table, *, labelled: bool) -> Columns:
        """With the columns that a table has, checked. Of new cases the target need not be there."""
        named = {"--target": self.target, "--id": self.id, "--time": self.time}
        if self.time is not None and self.id is None:
            raise DataError(
                f"{table.name}: --time is {self.time!r} without --id; expected the column that "
                "says which rows belong together"
            )
        target = usual_target(table) if labelled and self.target is None else self.target
        for option, name in named.items():
            if name is not None and (labelled or option != "--target"):
                table.place(name, option)
        apart = {target, self.id, self.time}
        others = tuple(name for name in table.header if name not in apart)
        if self.channels:
            self.compare(table, others)
            return replace(self, target=target)
        if not others:
            raise DataError(
                f"{table.name} has the columns {listed(table.header)}; expected one with measured "
                "values beside them"
            )
        for name in others:
            if name.lower() in NO_CHANNELS:
                option = "--id" if name.lower() == "id" else "--time"
                raise DataError(
                    f"{table.name} has a column {name!r}, which would be a channel; expected "
                    f"{option} {name}, or a file without it"
                )
        return replace(self, target=target, channels=others)

    def compare(self, table: Table, found: tuple[str, ...]) -> None:
        """Raise unless a table has the channels that are known, in any order."""
        for name in self.channels:
            if name not in found:
                raise DataError(
                    f"{table.name} has no column {name!r}; expected the channels "
                    f"{listed(self.channels)}"
                )
        for name in found:
            if name not in self.channels:
                raise DataError(
                    f"{table.name} has a column {name!r}, which the model does not know; expected "
                    f"the channels {listed(self.channels)}"
                )


def cases_of(
    table: Table, columns: Columns, *, labelled: bool, together: bool = False
) -> Iterator[Case]:
    """The cases of a table, whose columns are known. With `together` the rows of a case follow one
    another, and only one case is kept in memory."""
    places = [table.header.index(name) for name in columns.channels]
    target = _place(table, columns.target)
    identity = _place(table, columns.id)
    if columns.wide or identity is None:
        for count, row in enumerate(table):
            series = _shortened(table.numbers(row, places), table, row)
            name = str(count) if identity is None else row.cells[identity].strip()
            yield Case(name, series, target_of(table, row, target, labelled))
        return
    moment = _place(table, columns.time)
    gathered: dict[str, _Gathered] = {}
    done: set[str] = set()
    for row in table:
        name = row.cells[identity].strip()
        if not name:
            raise table.error(row.line, columns.id or "", "", "the name of a case")
        if name not in gathered:
            if together and name in done:
                raise DataError(
                    f"{table.name}, line {row.line}: the rows of {name!r} are not together; "
                    f"expected a file sorted by {columns.id!r}"
                )
            if together and gathered:
                yield _finished(table, columns, gathered)
            done.add(name)
            gathered[name] = _Gathered(name, row.line, target_of(table, row, target, labelled))
        case = gathered[name]
        case.add(table, row, places)
        if moment is not None:
            case.times.append(moment_in(table, row, moment))
        if labelled and target is not None and row.cells[target].strip() != case.target:
            expected = f"{case.target!r}, as in line {case.line}, for the whole of {name!r}"
            raise table.error(row.line, columns.target or "", row.cells[target], expected)
    while gathered:
        yield _finished(table, columns, gathered)


def usual_target(table: Table) -> str:
    """The column that is called as targets are."""
    usual = [name for name in table.header if name.lower() in TARGETS]
    if len(usual) != 1:
        raise DataError(
            f"{table.name} has the columns {listed(table.header)}; expected --target, the one that "
            "is to be learned"
        )
    return usual[0]


def one_case(table: Table, columns: Columns, name: str) -> Case:
    """All rows of a table as one case, whose channels are known; `columns.time` orders them."""
    places = [table.header.index(channel) for channel in columns.channels]
    moment = None if columns.time is None else table.place(columns.time, "--time")
    case = _Gathered(name, 2, None)
    for row in table:
        case.add(table, row, places)
        if moment is not None:
            case.times.append(moment_in(table, row, moment))
    if not case.rows:
        raise DataError(f"{table.name} has no values; expected a row for each position")
    return _finished(table, columns, {name: case})


def is_wide(table: Table, columns: Columns) -> bool:
    """Whether no case has two rows, so that a row is a series; reads on in the table."""
    if columns.id is None:
        return True
    if columns.time is not None or len(columns.channels) == 1:
        return False
    place, seen = table.header.index(columns.id), set[str]()
    for row in table:
        if row.cells[place] in seen:
            return False
        seen.add(row.cells[place])
    return True


@dataclass
class _Gathered:
    name: str
    line: int
    target: str | None
    rows: list[list[float]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def add(self, table: Table, row: Row, places: list[int]) -> None:
        self.rows.append(table.numbers(row, places))
        self.lines.append(row.line)


def _finished(table: Table, columns: Columns, gathered: dict[str, _Gathered]) -> Case:
    """The first case that is gathered, in the order of its times; it is taken out."""
    case = gathered.pop(next(iter(gathered)))
    series = np.array(case.rows)
    if case.times:
        order = np.argsort(case.times, kind="stable")
        times = np.array(case.times)[order]
        same = np.flatnonzero(np.diff(times) == 0)
        if len(same):
            line = case.lines[order[same[0] + 1]]
            raise DataError(
                f"{table.name}, line {line}, column {columns.time!r}: {case.name!r} has this time "
                f"in line {case.lines[order[same[0]]]} too; expected different times"
            )
        series = series[order]
    if np.isnan(series).all():
        raise DataError(f"{table.name}, line {case.line}: {case.name!r} has no value at all")
    return Case(case.name, series, case.target)


def _place(table: Table, name: str | None) -> int | None:
    return table.header.index(name) if name is not None and name in table.header else None


def target_of(table: Table, row: Row, place: int | None, labelled: bool) -> str | None:
    if place is None or not labelled:
        return None
    if not (text := row.cells[place].strip()):
        raise table.error(row.line, table.header[place], "", "a class or a number")
    return text


def _shortened(values: list[float], table: Table, row: Row) -> Floats:
    """A row as a series (length, 1); missing values at its end are beyond its end."""
    while values and math.isnan(values[-1]):
        values.pop()
    if not values:
        raise DataError(f"{table.name}, line {row.line}: the row has no value at all")
    return np.array(values)[:, None]


def moment_in(table: Table, row: Row, place: int) -> float:
    """A time as a number: a number, or seconds since 1970 of a date."""
    text = row.cells[place].strip()
    try:
        found = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            found = math.nan
        else:
            found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(found):
        expected = "a number, or a date as 2026-01-31 12:00:00"
        raise table.error(row.line, table.header[place], text, expected)
    return found
