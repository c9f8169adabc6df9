"""Series of files and folders: csv, npz, ts, and a folder of files for each class.

a.csv, a.csv.gz          a table, see columns.py
a.npz                    X (cases, channels, timepoints) or (cases, timepoints), y (cases,), and
                         for unequal lengths `lengths` (cases,)
a.ts                     the format of the UEA archive, with classes or numbers as targets
folder/<class>/*.csv     a series each: a column for each channel, the same in all files, a row for
                         each position, in the order of the column `--time` if there is one
folder/<class>/*.npy     an array (channels, timepoints) each
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.arrays import read_array, read_arrays
from ..base import DataError
from ..folders import visible
from ..series import Floats
from ..uea.ts import read_ts_targets
from .columns import Case, Columns, cases_of, is_wide, one_case
from .table import Table, listed, opened

ENDINGS = (".csv", ".csv.gz", ".npz", ".ts", ".ts.gz")
OF_A_CASE = (".csv", ".npy")  # files that hold one series


@dataclass(frozen=True, eq=False)
class Cases:
    """All cases of a file or folder. `columns` are those of a table; `names` those of the channels
    of a folder of tables."""

    cases: list[Case]
    columns: Columns | None
    names: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        return int(self.cases[0].series.shape[1])

    @property
    def targets(self) -> list[str]:
        return [case.target or "" for case in self.cases]


def read_cases(path: Path, columns: Columns, *, labelled: bool = True) -> Cases:
    """All cases, checked."""
    found = columns
    if is_table(path):
        with opened(path) as lines:
            table = Table(lines, str(path))
            found = columns.of(table, labelled=labelled)
            if not columns.channels:
                found = replace(found, wide=is_wide(table, found))
    elif path.is_dir():
        found = _first_channels(path, columns)
    cases = list(stream(path, found, labelled=labelled, together=False))
    if not cases:
        raise DataError(f"{path} has no cases; expected at least one")
    for case in cases:
        if case.series.shape[1] != cases[0].series.shape[1]:
            raise DataError(
                f"{path}: {case.name!r} has {case.series.shape[1]} channels; expected "
                f"{cases[0].series.shape[1]}, as {cases[0].name!r} has"
            )
    return Cases(cases, found) if is_table(path) else Cases(cases, None, found.channels)


def stream(path: Path, columns: Columns, *, labelled: bool, together: bool) -> Iterator[Case]:
    """The cases one by one; of tables, with `together`, only one is in memory."""
    if not path.exists():
        raise DataError(f"{path} is not there; expected a file or a folder")
    if path.is_dir():
        yield from _folder(path, columns, labelled=labelled)
    elif is_table(path):
        with opened(path) as lines:
            table = Table(lines, str(path))
            known = columns.of(table, labelled=labelled)
            yield from cases_of(table, known, labelled=labelled, together=together)
    elif path.suffix.lower() == ".npz":
        yield from _arrays(path, labelled=labelled)
    elif path.name.lower().endswith((".ts", ".ts.gz")):
        series, targets = read_ts_targets(path)
        if labelled and targets is None:
            raise DataError(f"{path} has no targets; expected a class or a number for each case")
        for i, one in enumerate(series):
            yield Case(str(i), one, targets[i] if labelled and targets is not None else None)
    else:
        raise DataError(
            f"{path} ends with {path.suffix!r}; expected a file that ends with "
            f"{', '.join(ENDINGS)}, or a folder"
        )


def is_table(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".txt"))


# -- arrays ----------------------------------------------------------------------------------------


def _arrays(path: Path, *, labelled: bool) -> Iterator[Case]:
    try:
        stored = read_arrays(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}; expected arrays of numbers") from error
    if "X" not in stored or (labelled and "y" not in stored):
        wanted = "X and y" if labelled else "X"
        raise DataError(f"{path} has the arrays {listed(list(stored))}; expected {wanted}")
    x = stored["X"]
    x = x[:, None] if x.ndim == 2 else x
    if x.ndim != 3 or x.size == 0 or x.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: X is {stored['X'].shape} of {x.dtype}; expected numbers (cases, channels, "
            "timepoints) or (cases, timepoints)"
        )
    lengths = stored.get("lengths", np.full(len(x), x.shape[2]))
    y = stored.get("y", np.zeros(len(x)))
    for name, array in (("y", y), ("lengths", lengths)):
        if array.shape != (len(x),):
            raise DataError(f"{path}: {name} is {array.shape}; expected ({len(x)},), one a case")
    if lengths.dtype.kind not in "iu" or lengths.min() < 1 or lengths.max() > x.shape[2]:
        raise DataError(
            f"{path}: lengths are {lengths.min()} to {lengths.max()}; expected integers of 1 to "
            f"{x.shape[2]}"
        )
    for i, one in enumerate(x):
        series = one[:, : lengths[i]].T.astype(np.float64)
        _refuse_infinite(series, f"{path}: case {i} of X")
        yield Case(str(i), series, _text(y[i]) if labelled else None)


def _text(target: Any) -> str:
    """A target as a table would have it; whole numbers without a point."""
    value = target.item() if hasattr(target, "item") else target
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse_infinite(series: Floats, what: str) -> None:
    if np.isinf(series).any():
        raise DataError(f"{what} has an infinite value; expected finite ones, NaN = missing")


# -- folders ---------------------------------------------------------------------------------------


def _folder(path: Path, columns: Columns, *, labelled: bool) -> Iterator[Case]:
    """A file is a case. Labelled ones lie in a folder of their class, others anywhere below."""
    files = case_files(path)
    for file, name in files:
        if labelled and file.parent == path:
            raise DataError(
                f"{file} is in no folder of a class; expected {path}/<class>/{file.name}"
            )
        if file.suffix.lower() == ".npy":
            series = _array(file)
        else:
            with opened(file) as lines:
                table = Table(lines, str(file))
                columns = _channels(table, columns)  # those of the first file are those of all
                series = one_case(table, columns, name).series
        yield Case(name, series, file.relative_to(path).parts[0] if labelled else None)


def _first_channels(path: Path, columns: Columns) -> Columns:
    """With the channels of the first table of a folder, if there is one."""
    for file, _ in case_files(path):
        if file.suffix.lower() != ".npy":
            with opened(file) as lines:
                return _channels(Table(lines, str(file)), columns)
    return columns


def _channels(table: Table, columns: Columns) -> Columns:
    """With the channels of a table of one series, which must be those that are known."""
    found = tuple(name for name in table.header if name not in (columns.time, columns.id))
    if columns.channels:
        columns.compare(table, found)
        return columns
    if not found:
        raise DataError(f"{table.name} has no values; expected a column for each channel")
    return replace(columns, channels=found)


def case_files(path: Path) -> list[tuple[Path, str]]:
    """The files of single series below a folder, each with its name there."""
    found = [
        (file, file.relative_to(path).as_posix())
        for file in sorted(path.rglob("*"))
        if file.name.lower().endswith(OF_A_CASE) and visible(file, path)
    ]
    if not found:
        expected = " or ".join(f"<class>/*{ending}" for ending in OF_A_CASE)
        raise DataError(f"{path} has no series; expected {expected}")
    return found


def _array(file: Path) -> Floats:
    try:
        found = read_array(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}; expected an array") from error
    if found.ndim != 2 or found.size == 0 or found.dtype.kind not in "biuf":
        raise DataError(
            f"{file} is {found.shape} of {found.dtype}; expected numbers (channels, timepoints)"
        )
    series: Floats = found.T.astype(np.float64)
    _refuse_infinite(series, str(file))
    return series
