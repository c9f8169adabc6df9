"""How a trained model reads rows: what the training part of a table has taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..base import DataError
from ..own.targets import as_number
from ..series import Integers, stored_classes
from .columns import Column, Columns
from .files import Form
from .rows import Rows


@dataclass(frozen=True)
class TableReader:
    """Columns as they were found, with the scales of numbers and the values of categories; classes
    in the order of the outputs, or mean and deviation of the numbers to be learned."""

    form: Form
    columns: Columns
    classes: tuple[str, ...]  # none for numbers
    scale: tuple[float, float] | None  # none for classes

    @classmethod
    def fit(
        cls,
        form: Form,
        columns: Sequence[Column],
        targets: Sequence[str],
        classes: tuple[str, ...],
    ) -> Self:
        """From rows and their targets, which are numbers if there are no classes."""
        scale = None
        if not classes:
            values = np.array([as_number(target) for target in targets])
            scale = float(values.mean()), float(values.std()) or 1.0
        return cls(form, Columns.of(columns), classes, scale)

    def inputs(self, columns: Sequence[Column]) -> tuple[Tensor, Tensor]:
        """Numbers (n, a) and codes (n, b) of a `TableNet`, in float64."""
        numbers, codes = self.columns(columns)
        return torch.from_numpy(numbers), torch.from_numpy(codes)

    def rows(self, columns: Sequence[Column], targets: Sequence[str], what: str) -> Rows:
        """With labels; `what` is what an error calls the file."""
        return Rows(*self.inputs(columns), self._labels(targets, what))

    def _labels(self, targets: Sequence[str], what: str) -> Tensor:
        if self.scale is None:
            places = {name: i for i, name in enumerate(self.classes)}
            unknown = [target for target in targets if target not in places]
            if unknown:
                raise DataError(
                    f"{what} has the class {unknown[0]!r}; expected one of "
                    f"{', '.join(self.classes)}"
                )
            return torch.tensor([places[target] for target in targets])
        mean, deviation = self.scale
        values = np.array([as_number(target) for target in targets])
        if np.isnan(values).any():
            wrong = targets[int(np.isnan(values).argmax())]
            raise DataError(f"{what} has the target {wrong!r}; expected finite numbers")
        return torch.from_numpy((values - mean) / deviation)

    def to_dict(self) -> dict[str, Any]:
        return {
            "reads": "table",
            "form": self.form.to_dict(),
            "columns": self.columns.to_dict(),
            "classes": list(self.classes),
            "scale": None if self.scale is None else list(self.scale),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        scale, classes = stored["scale"], stored["classes"]
        return cls(
            Form.from_dict(stored["form"]),
            Columns.from_dict(stored["columns"]),
            stored_classes(classes, len(classes)),
            None if scale is None else (float(scale[0]), float(scale[1])),
        )

    @property
    def shape(self) -> dict[str, int]:
        """How many columns it reads."""
        return {"columns": len(self.form.kinds)}


def chosen(columns: Sequence[Column], indices: Integers) -> list[Column]:
    """Some rows of a table."""
    return [column._replace(values=column.values[indices]) for column in columns]
