"""What a time-series classifier is given, in the words of scikit-learn and aeon, as our series."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ...tasks.series import Floats, Integers, SeriesSet

MANY_CHANNELS = 8  # times the timepoints; of the archive's sets PEMS-SF has most, 7 times


def warn_if_transposed(series: Sequence[Floats]) -> None:
    """Warn where series (length_i, channels) have many more channels than timepoints, as those of
    an array (cases, timepoints, channels) do."""
    longest, channels = max(map(len, series)), series[0].shape[1]
    if channels > MANY_CHANNELS * longest:
        warnings.warn(
            f"X has {channels} channels and at most {longest} timepoints; expected (cases, "
            "channels, timepoints): if they are swapped, give X.transpose(0, 2, 1)",
            UserWarning,
            stacklevel=4,
        )


def read_labels(y: Any, X: Any, name: str) -> tuple[npt.NDArray[Any], Integers]:
    """The classes that occur in y, sorted, and the index of each case's class among them."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    try:
        _check_kind(y)
        classes, indices = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"y has labels that cannot be sorted ({error}); expected labels of one type"
        ) from error
    if len(classes) < 2:
        raise ValueError(f"y has 1 class, {classes[0]!r}; expected at least 2 classes")
    return classes, indices.astype(np.int64)


def read_values(y: Any, X: Any, name: str, least: int = 2) -> Floats:
    """The numbers y (cases,) of a regression, so many at least."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    values: Floats = check_array(
        column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64, input_name="y"
    )
    check_consistent_length(X, values)
    if len(values) < least:
        raise ValueError(f"X has {len(values)} sample, 1 case; expected at least {least}")
    return values


def _check_kind(y: npt.NDArray[Any]) -> None:
    """Labels must be classes: no missing values and, in an array of floats, no fractions."""
    if y.dtype.kind in "fO":
        for i, label in enumerate(y):
            if label is None or (isinstance(label, float | np.floating) and np.isnan(label)):
                raise ValueError(f"label {i} of y is {label}; expected a class for each case")
    if y.dtype == object:  # scikit-learn refuses all but text there
        return
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y != np.floor(y)).any():
        value = y[y != np.floor(y)][0]
        # these first words are scikit-learn's
        raise ValueError(
            f"Unknown label type: continuous, since y has the number {value}; expected classes: "
            "whole numbers, text, or any values in an array of type object"
        )
    check_classification_targets(y)


def series_set(
    series: list[Floats], classes: Sequence[Any] | npt.NDArray[Any], labels: Integers | None = None
) -> SeriesSet:
    """As the engine has it; cases that are to be predicted have no label."""
    if labels is None:
        labels = np.full(len(series), -1, dtype=np.int64)
    return SeriesSet("X", series, labels, tuple(map(str, classes)))
