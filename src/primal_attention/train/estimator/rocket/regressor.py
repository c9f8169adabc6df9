"""The frozen bank for a number instead of a class."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.base import RegressorMixin

from ....tasks.series import Floats
from ..inputs import read_values, series_set
from .estimator import RocketEstimator
from .stacking import value_weights

__all__ = ["PrimalRocketRegressor"]


class PrimalRocketRegressor(RegressorMixin, RocketEstimator):  # type: ignore[misc]
    """Predicts a number for a time series; the same bank as `PrimalRocketClassifier`.

    Parameters, X and the attributes model_, alphas_ and weights_ are those of the classifier. The
    ridges are fitted on y with mean 0 and deviation 1; the weights of the parts have the least
    squared error on left-out cases.

    Attributes
    ----------
    left_out_ : the prediction (cases,) of each case of `fit` by the ridges of all others.
    """

    left_out_: Floats

    def fit(self, X: Any, y: Any) -> PrimalRocketRegressor:
        """Fit the ridges on series X and their values y (cases,)."""
        self._settings()  # raises before any work
        series = self._read(X, None)
        y = read_values(y, series, type(self).__name__)
        centre, deviation = float(y.mean()), float(y.std()) or 1.0
        targets = torch.from_numpy((y - centre) / deviation)[:, None]
        left_out = self._fit(series_set(series, ()), targets, value_weights)
        self._centre, self._deviation = centre, deviation
        self.left_out_ = self._restored(left_out)
        return self

    def predict(self, X: Any) -> Floats:
        """The value of each case (cases,)."""
        return self._restored(self._scores(X))

    def _restored(self, scores: torch.Tensor) -> Floats:
        found: Floats = scores[:, 0].mul(self._deviation).add(self._centre).numpy()
        return found
