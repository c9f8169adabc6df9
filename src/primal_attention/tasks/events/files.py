"""Event files: two text files with a line for each sequence, or a table (sequence, time, type)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base import DataError
from ..files import read_utf8
from .sets import EventSet

COLUMNS = ("sequence", "time", "type")


def read_pair(event_file: Path, time_file: Path, names: Sequence[str], name: str = "") -> EventSet:
    """Types, numbers from 1 on, in one file and times in another: a line for each sequence, numbers
    between spaces. Sequences of one event are left out: there is nothing to predict."""
    types = [_numbers(event_file, i, line, np.int64) for i, line in _lines(event_file)]
    times = [_numbers(time_file, i, line, np.float64) for i, line in _lines(time_file)]
    if len(types) != len(times):
        raise DataError(
            f"{event_file.name} has {len(types)} sequences and {time_file.name} {len(times)}; "
            "expected as many"
        )
    kept_times, kept_types = [], []
    for number, (own_types, own_times) in enumerate(zip(types, times, strict=True), 1):
        if len(own_types) != len(own_times):
            raise DataError(
                f"line {number} of {event_file.name} has {len(own_types)} types and of "
                f"{time_file.name} {len(own_times)} times; expected as many"
            )
        for kind in own_types.tolist():
            if not 1 <= kind <= len(names):
                raise DataError(
                    f"line {number} of {event_file.name} has the type {kind}; expected 1 to "
                    f"{len(names)}"
                )
        if len(own_types) > 1:
            kept_types.append(own_types - 1)
            kept_times.append(own_times.astype(np.float64))
    return EventSet(name or event_file.name, tuple(kept_times), tuple(kept_types), tuple(names))


def read_table(path: Path, names: Sequence[str] | None = None) -> EventSet:
    """A table with the columns `sequence`, `time` and `type` (a header says where they are), a row
    for each event; sequences are in the order in which they first appear, and their events must be
    in the order of time. `names` are the types that are known, None takes those of the file.
    """
    return read_rows(path, names)[0]


def read_rows(
    path: Path, names: Sequence[str] | None = None, *, shortest: int = 2
) -> tuple[EventSet, tuple[str, ...]]:
    """As `read_table`, and what the sequences are called. Those shorter than `shortest` are left
    out."""
    times: dict[str, list[float]] = {}
    types: dict[str, list[str]] = {}
    expected = None if names is None else set(names)
    for number, sequence, time, kind in _rows(path):
        own = times.setdefault(sequence, [])
        try:
            at = float(time)
        except ValueError:
            at = np.nan
        if not np.isfinite(at):
            raise DataError(f"line {number} of {path} has the time {time!r}; expected a number")
        if own and at < own[-1]:
            raise DataError(
                f"line {number} of {path} goes back in time: sequence {sequence!r} is at {time}, "
                f"after {own[-1]!r}; expected times that do not decrease"
            )
        if not kind:
            raise DataError(f"line {number} of {path} has no type; expected one")
        if names is not None and expected is not None and kind not in expected:
            raise DataError(
                f"line {number} of {path} has the type {kind!r}, which the model does not know; "
                f"expected one of {', '.join(names)}"
            )
        own.append(at)
        types.setdefault(sequence, []).append(kind)
    known = sorted({kind for own in types.values() for kind in own}) if names is None else names
    index = {kind: i for i, kind in enumerate(known)}
    kept = [sequence for sequence, own in times.items() if len(own) >= shortest]
    if not kept:
        raise DataError(f"{path} has no sequence of {shortest} events; expected at least one")
    return EventSet(
        path.name,
        tuple(np.array(times[s], dtype=np.float64) for s in kept),
        tuple(np.array([index[kind] for kind in types[s]], dtype=np.int64) for s in kept),
        tuple(known),
    ), tuple(kept)


def _rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """The number of the line, the sequence, the time and the type of every event."""
    with io.StringIO(read_utf8(path), newline="") as file:
        reader = csv.reader(file, delimiter="\t" if ".tsv" in path.suffixes else ",")
        header = [cell.strip().lower() for cell in next(_told(reader, path), [])]
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise DataError(
                f"{path} has the columns {', '.join(header) or 'none'}; expected "
                f"{', '.join(COLUMNS)} in its first line"
            )
        places = [header.index(name) for name in COLUMNS]
        for row in _told(reader, path):
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise DataError(
                    f"line {reader.line_num} of {path} has {len(row)} cells; expected {len(header)}"
                )
            sequence, time, kind = (row[place].strip() for place in places)
            yield reader.line_num, sequence, time, kind


def _told(reader: Any, path: Path) -> Iterator[list[str]]:
    """The rows of a csv reader; what it cannot read is told with its line."""
    try:
        yield from reader
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} of {path} cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((i, line) for i, line in enumerate(read_utf8(path).splitlines(), 1) if line.strip())


def _numbers(path: Path, number: int, line: str, kind: type) -> npt.NDArray[Any]:
    try:
        return np.array(line.split(), dtype=kind)
    except ValueError as error:
        raise DataError(f"line {number} of {path} cannot be read: {error}") from error
