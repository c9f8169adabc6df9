"""A classifier of bags: sets of instances, of which only the set has a label.

from primal_attention import PrimalBagClassifier

classifier = PrimalBagClassifier(random_state=0).fit(bags, y)    # bags: a list of (n_i, d) arrays
classifier.instance_weights(bags[0])    # which instances the decision rests on
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...runs.extras import needs_extra

with needs_extra("train", "PrimalBagClassifier needs"):
    import lightning_fabric  # noqa: F401
    from sklearn.base import ClassifierMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted, validate_data

from ...grammar import read_options
from ...models import SequenceClassifier
from ...models.build import build_model
from ...models.heads import AttentionHead
from ...models.packing import pack
from ...tasks.collection import is_collection
from ...tasks.series import Floats, Normaliser, SeriesData, SeriesSet
from ..config import RunConfig
from .base import SavedEstimator, prefixed, without_prefix
from .fit import Training, outputs, train
from .inputs import read_labels
from .parameters import check_integer, plain, seed_of
from .problem import Classes
from .progress import Bar

__all__ = ["PrimalBagClassifier"]

SHARED = ("width", "heads", "feedforward", "dropout", "eta", "lr", "weight_decay", "batch_size",
          "epochs", "weights", "feature_map", "rank")  # fmt: skip
FIXED: dict[str, Any] = {
    "model": "transformer", "norm": "pre", "positions": "none", "head": "attention",
    "schedule": "cosine", "optimizer": "adamw", "clip": 1.0, "warmup_steps": 20,
}  # fmt: skip


class PrimalBagClassifier(ClassifierMixin, SavedEstimator):  # type: ignore[misc]
    """Classifies bags of instances (multiple-instance learning): instances attend to each other by
    Primal-Attention, in time and memory linear in their number, and a gated pooling weighs them.

    X is a list of arrays (n_i, d), or an array (bags, n, d); a table (bags, d) has one instance in
    every bag. The order of instances does not matter. NaN is a missing value and counts as the mean
    of its column. Labels are as in `PrimalFormerClassifier`.

    Parameters
    ----------
    layers, width, heads, feedforward, dropout : of the network.
    attention, options : the attention of every layer, by name, and its options.
    weights, feature_map, rank, eta : of primal layers. The maps "gaussian" and "inverse_quadratic"
        are the kernels of Rymarczyk et al. (2021) as positive features, whose rows are divided by
        their sums.
    lr, weight_decay, batch_size, steps, epochs : of the training: so many steps at least, and so
        many passes.
    random_state : an integer for the same result every time, a numpy RandomState, or None.
    verbose : 1 shows a bar while the network is trained.

    Attributes
    ----------
    classes_ : the labels that occur in y, sorted.
    model_, history_, n_iter_ : the network, what was measured in training, and how many steps.
    """

    classes_: npt.NDArray[Any]
    model_: SequenceClassifier

    def __init__(
        self,
        *,
        layers: int = 1,
        attention: str = "primal",
        options: Mapping[str, Any] | None = None,
        weights: str = "tied",
        feature_map: str = "cosine",
        rank: int | None = None,
        eta: float = 0.0,
        width: int = 64,
        heads: int = 4,
        feedforward: int = 128,
        dropout: float = 0.1,
        lr: float = 3e-3,
        weight_decay: float = 0.01,
        batch_size: int = 16,
        steps: int = 400,
        epochs: int = 10,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.attention = attention
        self.options = options
        self.weights = weights
        self.feature_map = feature_map
        self.rank = rank
        self.eta = eta
        self.width = width
        self.heads = heads
        self.feedforward = feedforward
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.steps = steps
        self.epochs = epochs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on bags X and their labels y (bags,)."""
        config = self._config()
        bags = self._read(X, fit=True)
        self.classes_, labels = read_labels(y, bags, type(self).__name__)
        cases = SeriesSet("X", bags, labels, tuple(map(str, self.classes_)))
        self._normaliser = Normaliser.fit(cases)
        problem = Classes(torch.from_numpy(labels), len(self.classes_))
        rows = np.arange(len(bags))
        scaled = self._normaliser.apply(cases)
        bar = Bar(1, bool(self.verbose))
        training = Training(config, scaled, problem, rows, int(plain(self.steps)), None)
        fitted = train(training, lambda step, steps: bar.show(0, step, steps))
        bar.close()
        self._keep(config, fitted.model, training.shape["max_length"])
        self.history_, self.n_iter_ = fitted.history, fitted.steps
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (bags, classes), in the order of `classes_`."""
        check_is_fitted(self)
        found: Floats = outputs(self.model_, self._data(X)).softmax(1).numpy()
        return found

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each bag (bags,)."""
        chosen = self.predict_proba(X).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels

    @torch.inference_mode()
    def instance_weights(self, bag: Any) -> Floats:
        """The weight of every instance of one bag (n, d) in its pooling: positive, with sum 1."""
        check_is_fitted(self)
        data = self._data([np.asarray(bag, dtype=np.float64)])
        batch = data.__getitems__([0])
        rows, packing = pack(batch.inputs.double(), batch.padding)
        model, head = self.model_, self.model_.head
        if not isinstance(head, AttentionHead):
            raise TypeError(f"the head is a {type(head).__name__}; expected an AttentionHead")
        found: Floats = head.weights(model.encoder(model.embedding(rows), packing), packing)[
            0
        ].numpy()
        return found

    # -- parts -------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def _config(self) -> RunConfig:
        given = {name: plain(value) for name, value in self.get_params().items()}
        for name in ("layers", "steps"):
            check_integer(name, given[name], 1)
        if given["rank"] is None:
            given["rank"] = max(1, given["width"] // max(1, given["heads"]) // 2)
        config = RunConfig(
            task="series",
            seed=seed_of(self.random_state),
            attention=(given["attention"],) * given["layers"],
            options=read_options(given["options"]),
            **FIXED,
            **{name: given[name] for name in SHARED},
        )
        config.check_settings()
        return config

    def _keep(self, config: RunConfig, model: Any, longest: int) -> None:
        self._run, self._longest = config, longest  # the largest bag of fit
        model.max_length = sys.maxsize  # bags may be larger than those of fit: nothing has an order
        self.model_ = model.double().eval()

    def _read(self, X: Any, *, fit: bool) -> list[Floats]:
        """Bags as arrays (n_i, d)."""
        if is_collection(X):
            bags = [_bag(i, bag) for i, bag in enumerate(X)]
            width = bags[0].shape[1] if fit else self.n_features_in_
            for i, bag in enumerate(bags):
                if bag.shape[1] != width:
                    raise ValueError(f"bag {i} of X has {bag.shape[1]} columns; expected {width}")
            self.n_features_in_ = width
            if fit:
                self.__dict__.pop("feature_names_in_", None)  # of a fit before
            return bags
        rules: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        table = validate_data(self, X, reset=fit, **rules)
        return list(table[:, None])

    def _data(self, X: Any) -> SeriesData:
        bags = self._read(X, fit=False)
        cases = SeriesSet("X", bags, np.full(len(bags), -1, dtype=np.int64), ())
        return SeriesData(self._normaliser.apply(cases))

    def _content(self) -> dict[str, Any]:
        return {
            "run": self._run.to_dict(),
            "normaliser": self._normaliser.to_dict(),
            "history": self.history_,
            "steps": self.n_iter_,
            "longest": self._longest,  # what anchors and projections of the length follow from
        }

    def _tensors(self) -> Mapping[str, Tensor]:
        return prefixed("net", self.model_.state_dict())

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        config = RunConfig.from_dict(content["run"])
        self._normaliser = Normaliser.from_dict(content["normaliser"])
        channels, longest = len(self._normaliser.mean), content.get("longest", 1)
        shape = {"classes": len(self.classes_), "channels": channels, "max_length": longest}
        model = build_model(config, **shape).double()
        model.load_state_dict(without_prefix("net", tensors))
        self._keep(config, model, longest)
        self.history_, self.n_iter_ = content["history"], content["steps"]


def _bag(i: int, bag: Any) -> Floats:
    values = np.asarray(bag)
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "biuf":
        raise ValueError(
            f"bag {i} of X is {values.shape} of {values.dtype}; expected numbers (instances, "
            "columns), at least one of each"
        )
    found = values.astype(np.float64)
    if np.isinf(found).any():
        raise ValueError(f"bag {i} of X has an infinite value; expected finite ones, NaN = missing")
    return found
