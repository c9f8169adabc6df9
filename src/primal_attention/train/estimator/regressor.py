"""A regressor of time series in the style of scikit-learn: a number for a series.

from primal_attention import PrimalFormerRegressor

regressor = PrimalFormerRegressor(random_state=0).fit(X, y)    # X (cases, channels, timepoints)
regressor.score(X_test, y_test)    # R^2
"""

from __future__ import annotations

from typing import Any

from sklearn.base import RegressorMixin

from ...tasks.series import Floats
from .former import FormerEstimator
from .inputs import read_values
from .problem import Numbers
from .settings import Settings

__all__ = ["PrimalFormerRegressor"]


class PrimalFormerRegressor(RegressorMixin, FormerEstimator):  # type: ignore[misc]
    """Predicts a number for a time series; parameters, X and the attributes model_, ensemble_,
    mixture_, history_ and n_iter_ are those of `PrimalFormerClassifier`.

    Networks and ridges learn y with mean 0 and deviation 1 by the mean square; temperature and
    factors have the least squared error on cases that were left out.

    Attributes
    ----------
    left_out_ : the prediction (cases,) of each case of `fit` by what did not see it; None where no
        case was left out.
    """

    left_out_: Floats | None

    def fit(self, X: Any, y: Any) -> PrimalFormerRegressor:
        """Train on series X and their values y (cases,)."""
        settings = Settings.of(self.get_params())
        if settings.config.uncertainty != "none":
            raise ValueError(
                f"uncertainty is {settings.config.uncertainty!r}; expected 'none': a Gaussian "
                "readout is for classes"
            )
        series = self._read(X, None)
        y = read_values(y, series, type(self).__name__)
        problem, centre, deviation = Numbers.of(y)
        left_out = self._fit(settings, series, problem).held_out
        self._centre, self._deviation = centre, deviation
        self.left_out_ = None if left_out is None else self._restored(left_out)
        return self

    def predict(self, X: Any) -> Floats:
        """The value of each case (cases,)."""
        return self._restored(self._answers(X, Numbers))

    def _restored(self, answers: Any) -> Floats:
        found: Floats = answers[:, 0].mul(self._deviation).add(self._centre).numpy()
        return found
