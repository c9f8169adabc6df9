"""A time-series classifier in the style of scikit-learn and aeon.

from primal_attention import PrimalFormerClassifier

classifier = PrimalFormerClassifier(random_state=0).fit(X, y)    # X (cases, channels, timepoints)
classifier.score(X_test, y_test)
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from ...runs.extras import needs_extra

with needs_extra("train", "PrimalFormerClassifier needs"):
    import lightning_fabric  # noqa: F401
    import safetensors  # noqa: F401
    from sklearn.base import ClassifierMixin

from ...tasks.series import Floats
from .former import FormerEstimator
from .inputs import read_labels
from .problem import Classes
from .settings import Settings

__all__ = ["PrimalFormerClassifier"]


class PrimalFormerClassifier(ClassifierMixin, FormerEstimator):  # type: ignore[misc]
    """Classifies time series: networks of convolutions and Primal-Attention, and a frozen bank of
    random kernels, mixed by what they say of cases that they did not see.

    X is aeon's array (cases, channels, timepoints), a list of arrays (channels, timepoints_i) for
    series of unequal length, or scikit-learn's table (cases, timepoints) of univariate series. NaN
    is a missing value, and lies on the line between its neighbours. Infinite values are refused.
    Labels are of any type that can be sorted; an array of floats must hold whole numbers, since
    others are taken for a regression.

    Series that are longer than the longest in `fit` are cut to its length by the networks. They
    predict in float64, except on "mps", so that the cases of a batch do not influence each other.

    It passes the estimator checks of scikit-learn. Code that demands aeon's own `BaseClassifier`
    finds one, which passes the checks of aeon, in `primal_attention.train.estimator.aeon`.

    Parameters
    ----------
    ensemble : "fast" is the frozen bank alone, as `PrimalRocketClassifier`: seconds. "net" are
        two networks on all cases, and three that each leave a third out and choose a temperature
        on it. "best", the default, is both: their outputs are added with factors that make the
        cases left out most likely: a minute or two on two cores (`n_jobs=2`) for a few hundred
        series. Below 12 cases "best" is "fast", and "net" has no temperature.
    attention : the name of the attention in all layers, see `available_attentions()`; or a sequence
        with one name per layer, such as ("softmax", "primal"), and `layers` is not used.
    layers : how many layers.
    weights, feature_map, rank, rank_multi, anchor_rule, eta : of the primal layers: "tied", "data"
        or "free" projection weights; the feature map; the rank s of the KSVD, None for half the
        width of a head; anchors n = min(s * rank_multi, tokens) of "data", and how a series gives
        them; the factor of the KSVD loss beside the cross-entropy.
    options : further options of attentions, {"performer.features": 8}, also by attention,
        {"performer": {"features": 8}}; `attention_info(name).options` has their names.
    width, heads, feedforward, dropout : of the networks.
    normalise : "channel" scales each channel to mean 0 and deviation 1 by the statistics of the
        training cases, "asinh" draws in its tails before, "none" leaves X as it is. "auto" is
        "channel", or with a heavy-tailed channel that of the two with which the frozen bank has the
        lower loss on left-out cases.
    optimizer, lr, weight_decay, batch_size, clip : "adamw", "adam" or "radam"; `clip` bounds the
        norm of the gradient, None does not.
    steps, epochs : a network is trained for so many steps at least, and so many passes.
    networks : how many are trained on all cases; their outputs are averaged.
    folds : how many more leave a fold of the cases out, to choose the temperature and the mixture.
        0, with ensemble="net" only, is quicker and not calibrated.
    early_stopping : hold out `validation_fraction` of every class, end after `patience` passes
        without a better one, and keep the weights of the best: the highest accuracy, among equals
        the lowest loss. If no class has two cases, or with False, the last weights are kept.
    uncertainty : "readout" makes W_c of the last primal layer of each network a Gaussian, see
        `primal_attention.variational_`; `predict_proba` is then the mean over 16 draws. "none".
    groups : groups of 8 kernels for each dilation and each form of the series, in the frozen bank.
    max_minutes : networks get fewer steps, or are left out, so that `fit` takes no longer by the
        clock; the result then depends on the speed of the machine.
    n_jobs : processes that train networks, -1 for all cores; the result is the same with any
        number. Threads in `predict`.
    device : where networks compute: "cpu", "cuda", "mps", or "auto" for the best there is.
    random_state : an integer for the same result every time (on a CPU to the last bit), a numpy
        RandomState to draw one from, or None. The global generators are left as they were.
    verbose : 1 shows a bar while networks are trained.

    Attributes
    ----------
    classes_ : the labels that occur in y, sorted.
    n_features_in_ : channels, or timepoints if `fit` was given a table.
    model_ : the network on all cases, on the CPU, or None.
    ensemble_ : all of it; `mixture_` has the factors and the temperature.
    grid_ : the step of the grid that series with times are brought to, or None.
    left_out_proba_ : probabilities (cases, classes) of each case of `fit`, by what did not see it;
        None where no case was left out.
    history_, n_iter_ : of that network: a dict for each time that it was judged, with the losses
        while training, accuracy and loss on `split` ("validation" or "train"), and J and Lambda of
        its primal layers; and how many steps it was trained for.
    """

    classes_: npt.NDArray[Any]
    left_out_proba_: Floats | None

    def fit(self, X: Any, y: Any, times: Any = None) -> PrimalFormerClassifier:
        """Train on series X and their labels y (cases,).

        times: when the points of every series were taken, (cases, timepoints) or a list of arrays
        (timepoints_i,), increasing, in any unit. Without them points are equally far apart. Series
        with times are brought to a regular grid by lines between their points; `predict` and the
        others then need times too.
        """
        settings = Settings.of(self.get_params())
        series = self._fit_times(self._read(X, None), times)
        classes, labels = read_labels(y, series, type(self).__name__)
        built = self._fit(settings, series, Classes(torch.from_numpy(labels), len(classes)))
        self.classes_ = classes
        self.left_out_proba_ = None if built.held_out is None else built.held_out.numpy()
        return self

    def predict(self, X: Any, times: Any = None) -> npt.NDArray[Any]:
        """The most probable label of each case (cases,)."""
        chosen = self.predict_proba(X, times).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any, times: Any = None) -> Floats:
        """The probability of each class (cases, classes), in the order of `classes_`."""
        found: Floats = self._answers(X, Classes, times).numpy()
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, times: Any = None) -> float:
        """The mean accuracy on series X with labels y."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, times), sample_weight=sample_weight))
