"""Series as people hand them over, in the words of scikit-learn and aeon, as our arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .series import Floats


def is_collection(X: Any) -> bool:
    """Whether X holds a 2-D array for each case, so that it is not a table (cases, timepoints).

    What is neither raises here if the words of numpy about it would not help.
    """
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = X.tolist()
    if isinstance(X, list | tuple):
        if len(X) == 0:
            raise ValueError("X has 0 cases; expected at least one")
        if _dimensions(X[0]) == 2:
            return True
        _check_rows(X)
        return False
    if hasattr(X, "iloc"):
        _check_cells(X)
    return getattr(X, "ndim", None) == 3


def _dimensions(case: Any) -> int:
    """Of an array, or of nested lists, which may be of unequal length."""
    if hasattr(case, "ndim"):
        return int(case.ndim)
    if isinstance(case, list | tuple):
        return 1 + (_dimensions(case[0]) if case else 0)
    return 0


def _check_rows(X: Sequence[Any]) -> None:
    """The cases of a list that is a table must be rows of one length."""
    for i, case in enumerate(X):
        if _dimensions(case) == _dimensions(X[0]) == 1 and len(case) != len(X[0]):
            raise ValueError(
                f"case {i} of X has shape ({len(case)},) and case 0 ({len(X[0])},); expected rows "
                "of one length, or for unequal lengths arrays (channels, timepoints)"
            )


def _check_cells(X: Any) -> None:
    """The cells of a data frame must be numbers, not series, as the nested ones of sktime."""
    for column in range(X.shape[1] if X.ndim == 2 and len(X) else 0):
        if (shape := np.shape(X.iloc[0, column])) != ():
            raise ValueError(
                f"case 0 of X has a series of shape {shape} in column {column}; expected an array "
                "(channels, timepoints) for each case, or a table of numbers"
            )


def read_collection(X: Any) -> list[Floats]:
    """The series (length_i, channels) of an array (cases, channels, timepoints), or of a list of
    arrays (channels, timepoints_i)."""
    if len(X) == 0:
        raise ValueError("X has 0 cases; expected at least one")
    series = [_read_case(i, case) for i, case in enumerate(X)]
    for i, values in enumerate(series):
        if values.shape[1] != series[0].shape[1]:
            turned = len({len(one) for one in series}) == 1
            hint = "; are timepoints and channels swapped?" if turned else ""
            raise ValueError(
                f"case {i} of X has {values.shape[1]} channels; expected {series[0].shape[1]} as "
                f"in case 0{hint}"
            )
    return series


def _read_case(i: int, case: Any) -> Floats:
    try:
        values = np.asarray(case)
    except ValueError:  # nested lists
        raise ValueError(
            f"case {i} of X has channels of unequal length; expected (channels, timepoints)"
        ) from None
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"case {i} of X has shape {values.shape}; expected (channels, timepoints), at least "
            "one of each"
        )
    if values.dtype.kind not in "biufO":
        raise ValueError(f"case {i} of X has values of type {values.dtype}; expected real numbers")
    try:
        numbers = values.T.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"case {i} of X has a value that is no number: {error}") from error
    if np.isinf(numbers).any():
        raise ValueError(
            f"case {i} of X has an infinite value; expected finite ones, NaN = missing"
        )
    return numbers
