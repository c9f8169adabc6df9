"""A regressor of rows of a table, which learns from further labelled rows without a new fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....runs.extras import needs_extra

with needs_extra("train", "PrimalTableRegressor needs"):
    from sklearn.base import RegressorMixin

from ....tasks.series import Floats
from ..inputs import read_values
from ..problem import Numbers
from .estimator import TableEstimator

__all__ = ["PrimalTableRegressor"]


class PrimalTableRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    """Predicts a number for rows of a table in the light of rows whose number is known; parameters,
    X, `absorb`, `forget` and the other attributes are those of `PrimalTableClassifier`.

    The network learns y with mean 0 and deviation 1, by the mean square.
    """

    def fit(self, X: Any, y: Any) -> PrimalTableRegressor:
        """Train on rows X and their values y (rows,)."""
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> Floats:
        """A number for each row (rows,)."""
        found: Floats = self._answers(X)[:, 0].numpy()
        return self._centre + self._deviation * found

    def _fit_labels(self, y: Any, X: Any) -> Tensor:
        problem, self._centre, self._deviation = Numbers.of(read_values(y, X, type(self).__name__))
        return problem.targets

    def _labels(self, y: Any, X: Any) -> Tensor:
        values = read_values(y, X, type(self).__name__, least=1)
        return torch.from_numpy((values - self._centre) / self._deviation)

    def _content(self) -> dict[str, Any]:
        return {**super()._content(), "values": [self._centre, self._deviation]}

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self._centre, self._deviation = content["values"]
        super()._restore(content, tensors)
