"""A time-series classifier in the style of scikit-learn and aeon.

from primal_attention import PrimalFormerClassifier

classifier = PrimalFormerClassifier(random_state=0).fit(X, y)    # X (cases, channels, timepoints)
classifier.score(X_test, y_test)
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...runs.extras import needs_extra

with needs_extra("train", "PrimalFormerClassifier needs"):
    import lightning_fabric  # noqa: F401
    import safetensors  # noqa: F401
    from sklearn.base import ClassifierMixin
    from sklearn.utils.validation import check_is_fitted

from ...models import SequenceClassifier, SeriesNet
from ...tasks.series import Floats
from . import saving
from .fit import fit_model, prepare, probabilities
from .inputs import read_labels, series_set
from .reading import SeriesEstimator
from .settings import run_config

__all__ = ["PrimalFormerClassifier"]


class PrimalFormerClassifier(ClassifierMixin, SeriesEstimator):  # type: ignore[misc]
    """Classifies time series with a Transformer encoder of Primal-Attention layers.

    X is aeon's array (cases, channels, timepoints), a list of arrays (channels, timepoints_i) for
    series of unequal length, or scikit-learn's table (cases, timepoints) of univariate series. NaN
    is a missing value: it takes the mean of its channel, or 0 with normalise="none". Infinite
    values are refused. Labels are of any type that can be sorted; an array of floats must hold
    whole numbers, since others are taken for a regression.

    Series that are longer than the longest in `fit` are cut to its length in `predict`. Predicted
    is in float64, except on "mps", so that the cases of a batch do not influence each other.

    It passes the estimator checks of scikit-learn. Code that demands aeon's own `BaseClassifier`
    finds one, which passes the checks of aeon, in `primal_attention.train.estimator.aeon`.

    Parameters
    ----------
    attention : the name of the attention in all layers, see `available_attentions()`; or a sequence
        with one name per layer, such as ("softmax", "primal"), and `layers` is not used.
    layers : how many layers.
    weights, feature_map, rank, rank_multi, anchor_rule, eta : of the primal layers: "tied", "data"
        or "free" projection weights; the feature map; the rank s of the
        KSVD; anchors n = min(s * rank_multi, longest series)
        of "data", and how a series gives them, "sample" or "mean"; the factor of the KSVD loss
        beside the cross-entropy.
    options : further options of attentions, {"performer.features": 8}, also by attention,
        {"performer": {"features": 8}}; `attention_info(name).options` has their names.
    width, heads, feedforward, dropout : of the encoder.
    normalise : "channel" scales each channel to mean 0 and deviation 1 by the statistics of the
        training cases, "none" leaves X as it is.
    optimizer, lr, batch_size, clip : "adamw", "adam" or "radam"; `clip` bounds the norm of the
        gradient, None does not.
    epochs : at most so many passes over the training cases.
    early_stopping : hold out `validation_fraction` of every class, end after `patience` epochs
        without a better one, and keep the weights of the best: the highest accuracy, among equals
        the lowest loss. If no class has two cases, or with False, all epochs are trained on all
        cases and the last weights are kept.
    device : where to compute: "cpu", "cuda", "mps", or "auto" for the best there is.
    random_state : an integer for the same result every time (on a CPU to the last bit), a numpy
        RandomState to draw one from, or None. The global generators are left as they were.
    verbose : 1 prints a line for each epoch.

    Attributes
    ----------
    classes_ : the labels that occur in y, sorted.
    n_features_in_ : channels, or timepoints if `fit` was given a table.
    model_ : the network, on the CPU.
    normaliser_ : the statistics, or None.
    history_ : a dict for each epoch: task_loss and ksvd_loss while training, accuracy and loss on
        `split` ("validation" or "train") after it, and J and Lambda of its primal layers.
    n_iter_ : how many epochs were trained.
    """

    def __init__(
        self,
        *,
        attention: str | Sequence[str] = "primal",
        layers: int = 2,
        weights: str = "data",
        feature_map: str = "cosine",
        rank: int = 20,
        rank_multi: int = 10,
        anchor_rule: str = "sample",
        eta: float = 0.1,
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        feedforward: int = 128,
        dropout: float = 0.1,
        normalise: str = "channel",
        optimizer: str = "adamw",
        lr: float = 2e-3,
        batch_size: int = 16,
        epochs: int = 60,
        clip: float | None = 4.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 20,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.attention = attention
        self.layers = layers
        self.weights = weights
        self.feature_map = feature_map
        self.rank = rank
        self.rank_multi = rank_multi
        self.anchor_rule = anchor_rule
        self.eta = eta
        self.options = options
        self.width = width
        self.heads = heads
        self.feedforward = feedforward
        self.dropout = dropout
        self.normalise = normalise
        self.optimizer = optimizer
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.clip = clip
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> PrimalFormerClassifier:
        """Train on series X and their labels y (cases,)."""
        config = run_config(self.get_params())
        series = self._read(X, None)
        classes, labels = read_labels(y, series, type(self).__name__)
        fitted = fit_model(
            config,
            series_set(series, classes, labels),
            patience=self.patience if self.early_stopping else None,
            verbose=bool(self.verbose),
        )
        self._config = config
        self.classes_, self.model_, self.normaliser_ = classes, fitted.model, fitted.normaliser
        self.history_, self.n_iter_ = fitted.history, len(fitted.history)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each case (cases,)."""
        chosen = self.predict_proba(X).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (cases, classes), in the order of `classes_`."""
        check_is_fitted(self)
        series = self._read(X, self.model_.channels)
        cases = series_set(series, self.classes_)
        data = prepare(cases, self.normaliser_, self.model_.max_length)
        found = probabilities(self._model_in_place(), data)
        return found.double().numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted classifier as a folder of JSON and safetensors.

        A classifier that was saved there before is replaced, unless there are other files with it.
        A RandomState is saved as None.
        """
        check_is_fitted(self)
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrimalFormerClassifier:
        """The classifier in a folder; its predictions are those of the saved one to the last bit
        on the same machine."""
        return saving.load(cls, path)

    def _model_in_place(self) -> SequenceClassifier | SeriesNet:
        """A copy on the device, in the type to predict in."""
        device = self.device
        if device == "auto":
            found = torch.accelerator.current_accelerator(check_available=True)
            device = "cpu" if found is None else found.type
        dtype = torch.float32 if device == "mps" else torch.float64
        try:
            return copy.deepcopy(self.model_).to(device, dtype)
        except (AssertionError, RuntimeError) as error:  # torch raises either
            raise ValueError(
                f"device {device!r} cannot be used here ({error}); expected one that can, as with "
                "set_params(device='cpu')"
            ) from error
