"""A classifier of rows of a table, which learns from further labelled rows without a new fit.

from primal_attention import PrimalTableClassifier

classifier = PrimalTableClassifier(random_state=0).fit(X, y)    # arrays or pandas frames
classifier.absorb(X_new, y_new).predict(X_test)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ....runs.extras import needs_extra

with needs_extra("train", "PrimalTableClassifier needs"):
    from sklearn.base import ClassifierMixin
    from sklearn.utils.validation import check_consistent_length, column_or_1d

from ....tasks.series import Floats
from ..inputs import read_labels
from .estimator import TableEstimator

__all__ = ["PrimalTableClassifier"]


class PrimalTableClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """Classifies rows of a table in the light of labelled rows, which attend to each other and are
    attended to: self-attention between data points.

    A fitted model has its weights and a summary of the table, not the table: sums of a constant
    size, whatever the number of rows, with an attention that keeps sums. `absorb` adds labelled
    rows to the summary without training, and `forget` takes them away.

    X is an array or a pandas frame of numbers, texts, booleans, pandas' categories and moments.
    NaN and None are missing values; a category that was not there in `fit` counts as missing.
    Infinite numbers are refused.

    Parameters
    ----------
    context : "set" lets context rows attend to each other, "additive" does not: then the summary is
        a sum over rows, `absorb` is exact and `forget` possible.
    attention, options : of every layer, by name, with its options; it must attend to another
        sequence. See the columns "cross" and "summary" in the list of attentions.
    width, heads, layers, feedforward, dropout, frequencies : of the network; `frequencies` is how
        many learned waves of every number it is given.
    categorical : names or places of columns that are categories though they hold numbers.
    keep_table : keep the rows too, so that with context="set" all are encoded again when rows are
        absorbed or forgotten; the fitted model then grows with the table.
    networks : how many are trained, each from its own beginning and with its own rows held out; the
        mean of their probabilities, or of their numbers, is the answer. One is four times as fast.
    lr, weight_decay, steps, epochs, batch_size, max_context : of the training: in a step
        `batch_size` rows are asked (at most 3 of 10) and up to `max_context` others are their
        context; so many steps, or as many as `epochs` passes have.
    validation_fraction : of the rows are held out of the training, and choose the weights by their
        loss; they join the context afterwards. 0 keeps the last weights, and so do tiny tables.
    random_state : an integer for the same result every time, a numpy RandomState, or None.
    verbose : 1 shows a bar while the network is trained.

    Attributes
    ----------
    classes_ : the labels that occur in y, sorted.
    context_rows_ : how many rows the context has.
    summary_ : what each layer of each network keeps of them.
    net_, columns_, history_, n_iter_ : the networks, what is known of the columns, the loss of the
        first network in every step, and how many steps it had.
    """

    classes_: npt.NDArray[Any]

    def fit(self, X: Any, y: Any) -> PrimalTableClassifier:
        """Train on rows X and their labels y (rows,)."""
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each row (rows,)."""
        chosen = self.predict_proba(X).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (rows, classes), in the order of `classes_`."""
        found: Floats = self._answers(X).softmax(1).numpy()
        return found

    @property
    def _classes(self) -> int:
        return len(self.classes_)

    def _fit_labels(self, y: Any, X: Any) -> Tensor:
        self.classes_, labels = read_labels(y, X, type(self).__name__)
        return torch.from_numpy(labels)

    def _labels(self, y: Any, X: Any) -> Tensor:
        y = column_or_1d(y)
        check_consistent_length(X, y)
        unknown = [label for label in np.unique(y).tolist() if label not in self.classes_]
        if unknown:
            raise ValueError(
                f"y has the class {unknown[0]!r}, which was not there in fit; expected one of "
                f"{', '.join(map(repr, self.classes_.tolist()))}"
            )
        order = np.argsort(self.classes_)  # those of a run need not be sorted
        places = order[np.searchsorted(self.classes_, y, sorter=order)]
        return torch.from_numpy(places.astype(np.int64))
