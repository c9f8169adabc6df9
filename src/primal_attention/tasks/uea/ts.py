"""The archive's `.ts` text format, plain or gzipped.

# comment
@problemName JapaneseVowels
@dimensions 12
@classLabel true 1 2 3
@data
0.1,0.2,0.3:1.1,1.2,1.3:...:2        one case a line: dimensions, then the label
"""

from __future__ import annotations

import gzip
import math
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from ..base import DataError
from ..series import SeriesSet
from .cases import Case, CaseError, read_cases, shown

_BLOCK = 1 << 18  # bytes read at once: enough to hide numpy's overhead, and still in the cache


def read_ts(
    path: Path | Traversable | str, *, name: str | None = None, allow_unlabelled: bool = False
) -> SeriesSet:
    """Read a file. Values are exact in float64; `?` and `NaN` are NaN.

    Series may differ in length from case to case, not from dimension to dimension. A file or a case
    without a label (`@classLabel false`, or `?`) is an error, unless allow_unlabelled: then such
    labels are -1.
    """
    lines = _Lines(Path(path) if isinstance(path, str) else path)
    reading = iter(lines)
    header = _read_header(lines, reading)
    if header.numbers_at is not None:
        what = "the file has numbers as targets; expected class labels"
        raise lines.error(what, header.numbers_at)
    if header.classes is None and not allow_unlabelled:
        raise DataError(f"{lines.path} has no class labels; expected `@classLabel true` and labels")
    series, labels = _read(lines, reading, header, allow_unlabelled)
    name = lines.path.name.partition(".ts")[0] if name is None else name
    return SeriesSet(name, series, np.array(labels, dtype=np.int64), header.classes or ())


def read_ts_targets(path: Path) -> tuple[list[Case], list[str] | None]:
    """The series of a file, and their targets as text: names of classes, or numbers where it says
    `@targetLabel true`; None where it has neither."""
    lines = _Lines(path)
    reading = iter(lines)
    header = _read_header(lines, reading)
    series, labels = _read(lines, reading, header, False)
    if header.numbers_at is not None:
        return series, [str(value) for value in labels]
    if header.classes is None:
        return series, None
    return series, [header.classes[int(i)] for i in labels]


def _read(
    lines: _Lines, reading: Iterator[bytes], header: _Header, allow_unlabelled: bool
) -> tuple[list[Case], list[float]]:
    """Series and their labels: indices of classes, or numbers."""
    series: list[Case] = []
    labels: list[float] = []
    for numbers, cases, found in _blocks(lines, reading, header, allow_unlabelled):
        try:
            block = read_cases(cases)
        except CaseError as error:
            raise lines.error(str(error), numbers[error.index]) from None
        for number, case in zip(numbers, block, strict=True):
            first = series[0] if series else case
            _check_shape(lines, number, case, first, header)
            series.append(case)
        labels += found
    if not series:
        raise DataError(f"{lines.path} has no cases after @data; expected at least one")
    return series, labels


class _Lines:
    """The lines of a file without their line breaks, and where we are in it."""

    def __init__(self, path: Path | Traversable) -> None:
        self.path = path
        self.number = 0
        self.is_cut = False  # the last line has no line break

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as raw:
                is_gzip = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                for line in gzip.GzipFile(fileobj=raw) if is_gzip else raw:
                    self.number += 1
                    self.is_cut = not line.endswith(b"\n")
                    yield (line.removeprefix(BOM_UTF8) if self.number == 1 else line).strip()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self.path} is a damaged or incomplete gzip file: {error}") from error
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{self.path} cannot be read: {reason}") from error

    def error(self, what: str, number: int | None = None) -> DataError:
        number = self.number if number is None else number
        cut = number == self.number and self.is_cut
        hint = " (the file ends within this line: is it complete?)" if cut else ""
        return DataError(f"{self.path}, line {number}: {what}{hint}")


# -- header ----------------------------------------------------------------------------------------


@dataclass
class _Header:
    dimensions: int | None = None
    length: int | None = None
    equal_length: bool = False
    classes: tuple[str, ...] | None = None  # None: the file has no labels
    numbers_at: int | None = None  # the line that says that targets are numbers


def _read_header(lines: _Lines, reading: Iterator[bytes]) -> _Header:
    header = _Header()
    for line in reading:
        if not line or line.startswith(b"#"):
            continue
        if not line.startswith(b"@"):
            raise lines.error(
                f"found {shown(line)} before @data; expected a line that begins with @"
            )
        tag, *values = _decode(line).split()
        match tag.lower():
            case "@data":
                return header
            case "@timestamps" if _flag(lines, tag, values):
                raise lines.error("the file has time stamps; expected `@timeStamps false`")
            case "@targetlabel" if _flag(lines, tag, values):
                header.numbers_at = lines.number
            case "@univariate" if _flag(lines, tag, values):
                header.dimensions = 1
            case "@dimensions" | "@dimension":
                header.dimensions = _count(lines, tag, values)
            case "@equallength":
                header.equal_length = _flag(lines, tag, values)
            case "@serieslength":
                header.length = _count(lines, tag, values)
            case "@classlabel":
                header.classes = _classes(lines, tag, values)
    if lines.number == 0:
        raise DataError(f"{lines.path} is empty; expected a .ts file")
    raise DataError(f"{lines.path} has no @data line; expected one before the cases")


def _decode(text: bytes) -> str:
    """The archive has several encodings; what is not UTF-8 stays distinct."""
    return text.decode("utf-8", "backslashreplace")


def _flag(lines: _Lines, tag: str, values: list[str]) -> bool:
    if [v.lower() for v in values] not in (["true"], ["false"]):
        raise lines.error(f"{tag} is {' '.join(values)!r}; expected true or false")
    return values[0].lower() == "true"


def _count(lines: _Lines, tag: str, values: list[str]) -> int:
    text = " ".join(values)
    if not text.isdecimal() or int(text) < 1:
        raise lines.error(f"{tag} is {text!r}; expected an integer of at least 1")
    return int(text)


def _classes(lines: _Lines, tag: str, values: list[str]) -> tuple[str, ...] | None:
    has_labels = _flag(lines, tag, values[:1])
    classes = tuple(values[1:])
    if not has_labels:
        return None
    if not classes or len(set(classes)) < len(classes):
        raise lines.error(f"{tag} names the labels {' '.join(classes)!r}; expected different names")
    return classes


# -- cases -----------------------------------------------------------------------------------------


def _blocks(
    lines: _Lines, reading: Iterator[bytes], header: _Header, allow_unlabelled: bool
) -> Iterator[tuple[list[int], list[bytes], list[float]]]:
    """Line numbers, cases without their labels, and labels, a block of text at a time."""
    classes = header.classes or ()
    # as other readers do, a label may differ from the header's in upper and lower case
    known = {c.lower(): i for i, c in enumerate(classes)} | {c: i for i, c in enumerate(classes)}
    numbers: list[int] = []
    cases: list[bytes] = []
    labels: list[float] = []
    size = 0
    for line in reading:
        if not line or line.startswith(b"#"):
            continue
        case, label = line, -1.0
        if header.classes is not None or header.numbers_at is not None:
            case, colon, last = line.rpartition(b":")
            if not colon:
                raise lines.error("the case has no colon; expected a label after the last one")
            text = _decode(last).strip()
        if header.numbers_at is not None:
            label = _number(lines, text)
        elif header.classes is not None:
            label = known.get(text, known.get(text.lower(), -1))
            if label == -1 and not (allow_unlabelled and text == "?"):
                expected = ", ".join(classes)
                raise lines.error(
                    f"label {shown(last)} is not in the header; expected one of {expected}"
                )
        numbers.append(lines.number)
        cases.append(case)
        labels.append(label)
        size += len(case)
        if size >= _BLOCK:
            yield numbers, cases, labels
            numbers, cases, labels, size = [], [], [], 0
    if cases:
        yield numbers, cases, labels


def _number(lines: _Lines, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise lines.error(f"the target is {text!r}; expected a finite number")
    return found


def _check_shape(lines: _Lines, number: int, case: Case, first: Case, header: _Header) -> None:
    """The case against the header, and where that says nothing, against the first case."""
    length, dimensions = case.shape
    expected = header.dimensions or first.shape[1]
    if dimensions != expected:
        what = f"the case has {dimensions} dimensions; expected {expected}"
        raise lines.error(what, number)
    expected = header.length or len(first)
    if header.equal_length and length != expected:
        raise lines.error(f"the case has {length} positions; expected {expected}", number)
