"""The text of a case to numbers, exactly: one case value by value, or many cases at once.

A case is `1.5,2:3,4.25`: dimensions between colons, values between commas.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

Case = npt.NDArray[np.float64]  # (length, dimensions)


def read_cases(texts: list[bytes]) -> list[Case]:
    """All cases of a block of text; raises CaseError for the first that is not well formed."""
    cases = read_at_once(texts)
    if cases is not None:
        return cases
    cases = []
    for i, text in enumerate(texts):
        try:
            cases.append(read_one(text))
        except ValueError as error:
            raise CaseError(i, str(error)) from None
    return cases


class CaseError(ValueError):
    """What is wrong with one case of a block."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


# -- one by one: the reference, and the way of everything unusual ----------------------------------


def read_one(text: bytes) -> Case:
    """One case; ValueError says what is wrong with it."""
    if b"(" in text:
        raise ValueError("the case has (time, value) pairs; expected values without time stamps")
    rows: list[list[float]] = []
    for d, values in enumerate(text.split(b":"), 1):
        try:
            row = [float(v) for v in values.replace(b"?", b"nan").split(b",")]
        except ValueError:
            row = []
        if not row or b"_" in values or np.isinf(row).any():  # float() takes 1_000 and inf
            wrong = next(v for v in values.split(b",") if not _is_number(v))
            raise ValueError(
                f"value {shown(wrong)} in dimension {d}; expected a finite number, or ? or NaN "
                "where it is missing"
            )
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"dimension {d} has {len(row)} values; expected {len(rows[0])} as in dimension 1"
            )
        rows.append(row)
    return np.array(rows).T.copy()


def shown(text: bytes) -> str:
    """Text for a message: printable, and short even if it is a whole file."""
    return repr(text if len(text) <= 40 else text[:37] + b"...").removeprefix("b")


def _is_number(value: bytes) -> bool:
    try:
        return b"_" not in value and not np.isinf(float(value.replace(b"?", b"nan")))
    except ValueError:
        return False


# -- at once ---------------------------------------------------------------------------------------

# Without its dot every number is an integer, and integers are read many times faster than decimals.
# 1.25 = 125 / 10^2 is correctly rounded as long as both are exact in float64 (Clinger 1990).
_EXACT_INTEGER = 2**53
_EXACT_POWER = 22
_POWERS = np.array([float(f"1e{k}") for k in range(_EXACT_POWER + 1)])
_DOT, _COMMA, _LINE, _MINUS, _PLUS = b".,\n-+"
_PLAIN = b"0123456789+-.,:eE\n"
_TO_COMMAS = bytes.maketrans(b":\neE", b",,,,")
_IS_MARK = bytes(c in b".,:\neE" for c in range(256))


def read_at_once(texts: list[bytes]) -> list[Case] | None:
    """The same as read_one for each text, or None if anything in them is out of the ordinary."""
    text = b"\n".join(texts) + b"\n"
    if text.translate(None, _PLAIN):
        return None
    integers = _read_integers(text)
    characters = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(np.frombuffer(text.translate(_IS_MARK), np.bool_))
    kinds = characters[marks]
    is_dot = kinds == _DOT
    dots, ends = np.flatnonzero(is_dot), np.flatnonzero(~is_dot)
    if integers is None or len(integers) != len(ends):
        return None
    # numpy reads a lone sign as 0; and without its dot, .-5 is a number
    signs = _is_sign(characters[marks - 1])
    after_dots = characters[marks[dots] + 1]
    lone = signs[dots] & (marks[dots] + 1 == marks[dots + 1])  # -.
    if signs[ends].any() or lone.any() or _is_sign(after_dots).any():
        return None

    stops = marks[ends]  # where each integer's text ends
    starts = np.concatenate([[0], stops[:-1] + 1])
    kinds = kinds[ends]  # what follows each integer
    owners = dots - np.arange(len(dots))  # the integer that each dot stands in
    scales = np.zeros(len(integers), np.int64)
    scales[owners] = marks[dots] + 1 - stops[owners]  # minus the number of digits after the dot
    mantissas = np.flatnonzero((kinds | 0x20) == ord("e"))
    is_exponent = np.zeros(len(integers), np.bool_)
    is_exponent[mantissas + 1] = True
    if (
        (owners[1:] == owners[:-1]).any()  # 1.2.3
        or is_exponent[owners].any()  # 1e2.3
        or is_exponent[mantissas].any()  # 1e2e3
    ):
        return None
    if len(mantissas):
        scales[mantissas] += integers[mantissas + 1]
        stops[mantissas], kinds[mantissas] = stops[mantissas + 1], kinds[mantissas + 1]
        numbers = np.flatnonzero(~is_exponent)
        integers, scales, kinds = integers[numbers], scales[numbers], kinds[numbers]
        starts, stops = starts[numbers], stops[numbers]

    shifts = scales.clip(-_EXACT_POWER, _EXACT_POWER)
    powers = _POWERS[np.abs(shifts)]
    values = np.where(shifts < 0, integers / powers, integers * powers)
    zeros = np.flatnonzero(integers == 0)
    values[zeros[characters[starts[zeros]] == _MINUS]] = -0.0
    inexact = (shifts != scales) | (integers > _EXACT_INTEGER) | (integers < -_EXACT_INTEGER)
    for i in np.flatnonzero(inexact):
        values[i] = float(text[starts[i] : stops[i]])
    return None if np.isinf(values).any() else _cut(values, kinds)


def _read_integers(text: bytes) -> npt.NDArray[np.int64] | None:
    """All integers between the marks of a text, its dots left out; None if it has anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            return np.fromstring(text.translate(_TO_COMMAS, b"."), dtype=np.int64, sep=",")
    except (ValueError, DeprecationWarning):  # an error or, in older numpy, a warning
        return None


def _is_sign(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    signs: npt.NDArray[np.bool_] = (characters == _MINUS) | (characters == _PLUS)
    return signs


def _cut(values: npt.NDArray[np.float64], kinds: npt.NDArray[np.uint8]) -> list[Case] | None:
    """Values to cases (length, dimensions), by what follows each value."""
    row_ends = np.flatnonzero(kinds != _COMMA)
    lengths = np.diff(row_ends, prepend=-1)  # of every dimension of every case
    last_rows = np.flatnonzero(kinds[row_ends] == _LINE)
    rows = np.diff(last_rows, prepend=-1)  # dimensions of every case
    if (lengths != np.repeat(lengths[last_rows], rows)).any():
        return None
    cases, start = [], 0
    for d, n in zip(rows.tolist(), lengths[last_rows].tolist(), strict=True):
        cases.append(values[start : start + d * n].reshape(d, n).T.copy())
        start += d * n
    return cases
