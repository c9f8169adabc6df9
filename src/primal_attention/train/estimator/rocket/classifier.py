"""A time-series classifier with nothing to train but ridges: seconds to fit.

from primal_attention import PrimalRocketClassifier

classifier = PrimalRocketClassifier(random_state=0).fit(X, y)    # X (cases, channels, timepoints)
classifier.score(X_test, y_test)
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from torch.nn.functional import one_hot

from ....tasks.series import Floats
from ..inputs import read_labels, series_set
from .estimator import RocketEstimator
from .stacking import class_weights

__all__ = ["PrimalRocketClassifier"]


class PrimalRocketClassifier(ClassifierMixin, RocketEstimator):  # type: ignore[misc]
    """Classifies time series by a frozen bank of random dilated kernels and ridge regression.

    The kernels respond to the series and to its difference, and the responses are pooled into parts
    of features. Each part has a ridge whose penalty is chosen by the closed form of leave-one-out,
    and the parts are added with positive weights that make the left-out cases as likely as
    possible. So the probabilities are calibrated without a held-out set.

    X is aeon's array (cases, channels, timepoints), a list of arrays (channels, timepoints_i) for
    series of unequal length, or scikit-learn's table (cases, timepoints) of univariate series. NaN
    is a missing value, and lies on the line between its neighbours. Infinite values are refused.

    Memory beside X: a copy of it in float64 and 160 MB for its statistics; for N cases and F
    features, F about 10,000 (1 + log2(timepoints / 8)), 4 F min(N, landmarks) bytes and about
    70 N min(N, landmarks) bytes; and four copies of the largest case.

    Parameters
    ----------
    parts : the features to use. Hydra's counts: "max_counts", "min_counts"; how often a response is
        above a threshold: "proportions", how far: "excess", "maxima"; when: "winner_cosines",
        "positive_cosines"; second-order summaries with tied weights: "tied"; the series: "raw".
    groups : groups of 8 kernels for each dilation and each form of the series.
    max_positions : of longer series, every k-th response counts, so that no more are computed.
    landmarks : up to so many cases the ridge is exact; above, it lies in the span of so many
        random cases.
    n_jobs : threads, -1 for all cores; None leaves the number as torch has it.
    random_state : an integer for the same result every time, a numpy RandomState to draw one from,
        or None.

    Attributes
    ----------
    classes_ : the labels that occur in y, sorted.
    n_features_in_ : channels, or timepoints if `fit` was given a table.
    model_ : the `RocketModel`: statistics, bank, ridges, weights.
    alphas_, weights_ : the penalty and the weight of each part.
    left_out_proba_ : probabilities (cases, classes) of each case of `fit`, by the ridges of all
        others.
    """

    classes_: npt.NDArray[Any]
    left_out_proba_: Floats

    def fit(self, X: Any, y: Any) -> PrimalRocketClassifier:
        """Fit the ridges on series X and their labels y (cases,)."""
        self._settings()  # raises before any work
        series = self._read(X, None)
        classes, labels = read_labels(y, series, type(self).__name__)
        targets = 2.0 * one_hot(torch.from_numpy(labels), len(classes)).double() - 1.0
        left_out = self._fit(
            series_set(series, classes, labels),
            targets,
            lambda scores, targets: class_weights(scores, targets.argmax(1)),
        )
        self.classes_ = classes
        self.left_out_proba_ = left_out.softmax(1).numpy()
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each case (cases,)."""
        chosen = self.predict_proba(X).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (cases, classes), in the order of `classes_`."""
        found: Floats = self._scores(X).softmax(1).numpy()
        return found
