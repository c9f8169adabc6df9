"""The columns of a table: which are numbers, which categories, and how a network is given them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..series import Floats, Integers

Objects = npt.NDArray[np.object_]
NORMAL_QUARTILES = 1.349  # their distance in a normal distribution of deviation 1
CLIP = 3.0  # deviations, near which large numbers are drawn in


class Column(NamedTuple):
    """One column of a table: numbers with NaN where missing, or objects, which are categories."""

    name: str
    values: Any  # Floats or Objects

    @property
    def is_number(self) -> bool:
        return bool(self.values.dtype != object)


@dataclass(frozen=True)
class Scale:
    """z = (x - centre) / spread, drawn in smoothly beyond `CLIP`: z / sqrt(1 + (z / CLIP)^2)."""

    centre: float
    spread: float

    @classmethod
    def of(cls, values: Floats) -> Scale:
        """By median and quartiles, which single wild numbers do not move."""
        known = values[~np.isnan(values)]
        if len(known) == 0:
            return cls(0.0, 1.0)
        low, centre, high = np.quantile(known, [0.25, 0.5, 0.75])
        spread = (high - low) / NORMAL_QUARTILES or float(known.std()) or 1.0
        return cls(float(centre), float(spread))

    @classmethod
    def stored(cls, centre: Any, spread: Any) -> Scale:
        """From JSON, which may be anything."""
        found = cls(float(centre), float(spread))
        if not (np.isfinite(found.centre) and np.isfinite(found.spread) and found.spread > 0):
            raise ValueError(f"a scale is {found.centre} and {found.spread}; expected finite ones")
        return found

    def __call__(self, values: Floats) -> Floats:
        z = (values - self.centre) / self.spread
        scaled: Floats = z / np.sqrt(1.0 + (z / CLIP) ** 2)
        return scaled


@dataclass(frozen=True)
class Columns:
    """What a table looked like when it was fitted. `known` has a `Scale` for a column of numbers,
    the texts of its values for one of categories."""

    names: tuple[str, ...]
    known: tuple[Scale | tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Columns:
        known: list[Scale | tuple[str, ...]] = []
        for column in columns:
            if column.is_number:
                known.append(Scale.of(column.values))
            else:
                texts = {text for text in map(text_of, column.values) if text is not None}
                known.append(tuple(sorted(texts)))
        return cls(tuple(column.name for column in columns), tuple(known))

    @property
    def numbers(self) -> int:
        return sum(isinstance(one, Scale) for one in self.known)

    @property
    def categories(self) -> list[int]:
        """How many values each category has."""
        return [len(one) for one in self.known if not isinstance(one, Scale)]

    def __call__(self, columns: Sequence[Column]) -> tuple[Floats, Integers]:
        """Scaled numbers (n, a), NaN where missing, and codes (n, b): 0 for a value that is missing
        or was not there before."""
        numbers, codes = [], []
        for column, known in zip(columns, self.known, strict=True):
            if isinstance(known, Scale):
                if not column.is_number:
                    raise ValueError(
                        f"column {column.name} has the value {_first_text(column.values)!r}; "
                        "expected numbers, as in fit"
                    )
                numbers.append(known(column.values))
            else:
                places = {text: i + 1 for i, text in enumerate(known)}
                texts = map(text_of, column.values)
                codes.append([0 if text is None else places.get(text, 0) for text in texts])
        n = len(columns[0].values)
        table = np.stack(numbers, 1) if numbers else np.zeros((n, 0))
        chosen = np.array(codes, dtype=np.int64).T if codes else np.zeros((n, 0), dtype=np.int64)
        return table, chosen

    def as_fitted(self, columns: Sequence[Column]) -> list[Column]:
        """Columns whose kind depends on what happens to be in them, as the kind that was fitted."""
        found = []
        for column, known in zip(columns, self.known, strict=True):
            if not isinstance(known, Scale) and column.is_number:
                objects = np.array([None if np.isnan(v) else v for v in column.values], object)
                column = column._replace(values=objects)
            found.append(column)
        return found

    def to_dict(self) -> dict[str, Any]:
        known = [
            [one.centre, one.spread] if isinstance(one, Scale) else list(one) for one in self.known
        ]
        kinds = ["number" if isinstance(one, Scale) else "category" for one in self.known]
        return {"names": list(self.names), "kinds": kinds, "known": known}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Columns:
        """The inverse; anything else is a ValueError."""
        parts = zip(stored["names"], stored["kinds"], stored["known"], strict=True)
        names, known = [], []
        for name, kind, one in parts:
            names.append(_text(name))
            known.append(Scale.stored(*one) if kind == "number" else tuple(map(_text, one)))
        return cls(tuple(names), tuple(known))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}; expected a text")
    return value


def text_of(value: Any) -> str | None:
    """A category as text, 1 and 1.0 alike; None where it is missing."""
    if value is None or value != value or str(value) in ("<NA>", "NaT"):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def from_objects(name: str, values: Objects, *, category: bool = False) -> Column:
    """A column of objects: numbers, if all that is there is one, and not a text."""
    found = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if text_of(value) is None:
            continue
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if category or not number:
            return Column(name, values)
        found[i] = float(value)
    return Column(name, found)


def _first_text(values: Objects) -> Any:
    return next((v for v in values if not isinstance(v, int | float | np.number)), None)
