"""A table as users have it, numpy's or pandas', as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from ....tasks.table.columns import Column, from_objects


def read_columns(
    estimator: Any, X: Any, categorical: str | Sequence[int | str], *, fit: bool
) -> list[Column]:
    """The columns of X. `categorical`: names or places of those that are categories though they
    hold numbers; "auto" takes texts, booleans and pandas' categories."""
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        return _from_frame(estimator, X, categorical, fit=fit)
    plain = np.asarray(X) if isinstance(X, list | tuple) else X
    if isinstance(plain, np.ndarray) and plain.dtype.kind in "OUS":
        table = check_array(X, dtype=object, ensure_all_finite=False, estimator=estimator)
        validate_data(estimator, table, skip_check_array=True, reset=fit)
        places = _places(categorical, [str(j) for j in range(table.shape[1])])
        found = [
            from_objects(str(j), table[:, j], category=j in places) for j in range(table.shape[1])
        ]
    else:
        rules: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        table = validate_data(estimator, X, reset=fit, **rules)
        places = _places(categorical, [str(j) for j in range(table.shape[1])])
        found = [_numbers(str(j), table[:, j], j in places) for j in range(table.shape[1])]
    return _finite(found)


def _from_frame(
    estimator: Any, X: Any, categorical: str | Sequence[int | str], *, fit: bool
) -> list[Column]:
    validate_data(estimator, X, skip_check_array=True, reset=fit)
    if len(X) == 0 or X.shape[1] == 0:
        check_array(np.empty(X.shape), estimator=estimator)  # scikit-learn's words
    names = [str(name) for name in X.columns]
    places = _places(categorical, names)
    found = []
    for j, name in enumerate(names):
        series = X.iloc[:, j]
        kind = getattr(series.dtype, "kind", "O")
        if str(series.dtype) in ("category", "string") or kind == "b":
            objects = series.to_numpy(dtype=object)
            found.append(Column(name, objects))
        elif kind in "iuf":
            numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
            found.append(_numbers(name, numbers, j in places))
        elif kind == "M":  # moments, in days
            stamps = series.to_numpy(dtype="datetime64[ns]")
            days = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 86_400e9)
            found.append(Column(name, days))
        elif kind == "c":
            raise ValueError(f"Complex data not supported: column {name}")
        else:
            objects = series.to_numpy(dtype=object)
            found.append(from_objects(name, objects, category=j in places))
    return _finite(found)


def _numbers(name: str, values: Any, category: bool) -> Column:
    if not category:
        return Column(name, values)
    return Column(name, np.array([None if np.isnan(v) else v for v in values], dtype=object))


def _places(categorical: str | Sequence[int | str], names: list[str]) -> set[int]:
    if isinstance(categorical, str):
        if categorical != "auto":
            raise ValueError(
                f"categorical is {categorical!r}; expected 'auto', or names or places of columns"
            )
        return set()
    found = set()
    for one in categorical:
        place = names.index(one) if isinstance(one, str) and one in names else one
        if not isinstance(place, int | np.integer) or not -len(names) <= place < len(names):
            raise ValueError(
                f"categorical has {one!r}; expected names or places of the {len(names)} columns"
            )
        found.add(int(place) % len(names))
    return found


def _finite(columns: list[Column]) -> list[Column]:
    for column in columns:
        if column.is_number and np.isinf(column.values).any():
            raise ValueError(
                f"Input X contains infinity in column {column.name}; expected finite numbers, "
                "NaN = missing"
            )
    return columns
