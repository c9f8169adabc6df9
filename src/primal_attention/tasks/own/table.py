"""The rows of a csv file, and the numbers in them; errors name file, line, column and value."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from ...names import near
from ..base import DataError

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))  # in any case
DELIMITERS = ",;\t|"


class Row(NamedTuple):
    line: int
    cells: list[str]


class Table:
    """A csv file with a line of names, read row by row. `name` is what errors call it."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.name, self._line = name, 0
        self._rows = self._read(lines)
        first = next(self._rows, None)
        if first is None:
            raise DataError(f"{name} is empty; expected a line with the names of columns")
        self.header = [cell.strip() for cell in first.cells]
        self._check_header()

    def __iter__(self) -> Iterator[Row]:
        """The rows below the header; empty lines are left out."""
        for row in self._rows:
            if len(row.cells) != len(self.header):
                raise DataError(
                    f"{self.name}, line {row.line}: the row has {len(row.cells)} cells; expected "
                    f"{len(self.header)}, as the header has"
                )
            yield row

    def place(self, column: str, option: str) -> int:
        """Where a column is, which an option names."""
        if column not in self.header:
            raise DataError(
                f"{self.name} has no column {column!r} for {option}{near(column, self.header)}; "
                f"expected one of {listed(self.header)}"
            )
        return self.header.index(column)

    def error(self, line: int, column: str, value: str, expected: str) -> DataError:
        return DataError(
            f"{self.name}, line {line}, column {column!r}: found {value[:40]!r}; expected "
            f"{expected}"
        )

    def numbers(self, row: Row, places: Sequence[int]) -> list[float]:
        """The cells at these places; a missing value is NaN."""
        cells = row.cells
        try:
            found = [float(cells[place]) for place in places]
            if math.isfinite(sum(found)):
                return found
        except ValueError:
            pass
        return [self._number(row, place) for place in places]

    def _number(self, row: Row, place: int) -> float:
        text = row.cells[place].strip()
        if text.lower() in MISSING:
            return math.nan
        try:
            value = float(text)
        except ValueError:
            value = math.inf
        if math.isinf(value):
            expected = "a finite number, or an empty cell where a value is missing"
            raise self.error(row.line, self.header[place], text, expected)
        return value

    def _read(self, lines: Iterable[str]) -> Iterator[Row]:
        lines = iter(lines)
        try:
            first = next(lines, "")
            delimiter = max(DELIMITERS, key=first.count)
            reader = csv.reader(_chained(first, lines), delimiter=delimiter, strict=True)
            for cells in reader:
                if cells:
                    yield Row(reader.line_num, cells)
                self._line = reader.line_num
        except csv.Error as error:
            raise DataError(f"{self.name}, line {self._line + 1}: {error}") from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.name}, after line {self._line}: byte {error.object[error.start]:#x} is no "
                "UTF-8; expected text in UTF-8"
            ) from error

    def _check_header(self) -> None:
        for i, name in enumerate(self.header):
            if not name:
                raise DataError(f"{self.name}, line 1: column {i + 1} has no name; expected one")
            if name in self.header[:i]:
                raise DataError(
                    f"{self.name}, line 1: two columns are called {name!r}; expected different "
                    "names"
                )
        if len(self.header) > 1 and all(is_number(name) for name in self.header):
            shown = listed(self.header)
            if self.header != [str(i) for i in range(len(self.header))]:
                raise DataError(f"{self.name}, line 1: found {shown}; expected names of columns")


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """A text file, plain or gzipped, without the mark that some programs put first."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            binary = gzip.GzipFile(fileobj=raw) if packed else raw
            yield io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged or incomplete gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
