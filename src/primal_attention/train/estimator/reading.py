"""What all estimators for time series share: the forms of X that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, validate_data

from ...tasks.collection import is_collection, read_collection
from ...tasks.series import Floats
from .inputs import warn_if_transposed


class SeriesEstimator(BaseEstimator):  # type: ignore[misc]
    """Reads collections (cases, channels, timepoints) and tables (cases, timepoints)."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def _read(self, X: Any, channels: int | None) -> list[Floats]:
        """X as series (length_i, channels); None in `fit`, the channels of `fit` afterwards."""
        fit = channels is None
        if is_collection(X):
            series = read_collection(X)
            found = series[0].shape[1]
            if fit:
                warn_if_transposed(series)
            if fit:
                self._from_table, self.n_features_in_ = False, found
                self.__dict__.pop("feature_names_in_", None)  # of a fit before
        else:
            series, found = self._read_table(X, fit=fit), 1
        if not fit and found != channels:
            turned = all(len(values) == channels for values in series)
            hint = "; are timepoints and channels swapped?" if turned else ""
            raise ValueError(f"X has {found} channels; expected {channels} as in fit{hint}")
        return series

    def _read_table(self, X: Any, *, fit: bool) -> list[Floats]:
        rules: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        if fit or self._from_table:  # then scikit-learn demands the same columns
            table = validate_data(self, X, reset=fit, **rules)
            self._from_table = True
        else:
            table = check_array(X, estimator=self, input_name="X", **rules)
        return list(table[:, :, np.newaxis])
