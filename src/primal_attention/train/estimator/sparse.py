"""Kernel machines of a few learned points, as estimators.

from primal_attention import SparseKernelClassifier

classifier = SparseKernelClassifier(n_preimages=4).fit(X, y)
classifier.preimages_, classifier.n_numbers_
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from ...runs.extras import needs_extra

with needs_extra("train", "SparseKernelClassifier needs"):
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data

from ...names import check_choice
from ...tasks.series import Floats
from ...theory.preimages import NAMES, OF_PRODUCTS, Learner, Machine, PointKernel
from .alone import alone
from .base import SavedEstimator
from .folder import finite
from .inputs import read_labels, read_values
from .parameters import check_integer, plain, seed_of

__all__ = ["SparseKernelClassifier", "SparseKernelRegressor"]


class SparseKernelEstimator(SavedEstimator):
    """See `SparseKernelClassifier`."""

    machine_: Machine

    def __init__(
        self,
        n_preimages: int = 8,
        *,
        kernel: str = "poly",
        gamma: float | None = None,
        degree: int = 2,
        coef0: float = 1.0,
        l1: float | None = None,
        ridge: float = 1e-5,
        learn_points: bool = True,
        steps: int = 400,
        lr: float = 0.05,
        restarts: int = 3,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_preimages = n_preimages
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.l1 = l1
        self.ridge = ridge
        self.learn_points = learn_points
        self.steps = steps
        self.lr = lr
        self.restarts = restarts
        self.random_state = random_state

    @property
    def preimages_(self) -> Floats:
        """The learned points (T, d), in the units of X where a column counts, NaN where not."""
        check_is_fitted(self)
        points = self.machine_.points.numpy()
        found: Floats = np.where(points != 0, points * self._spread + self._mean, np.nan)
        return found

    @property
    def columns_(self) -> npt.NDArray[np.intp]:
        """The columns that any learned point uses."""
        check_is_fitted(self)
        return np.flatnonzero((self.machine_.points != 0).any(0).numpy())

    @property
    def n_numbers_(self) -> int:
        """How many numbers the machine is: the entries of the points that are not zero, alpha, b,
        and mean and deviation of every column that is used."""
        return self.machine_.numbers + 2 * len(self.columns_)

    def _learner(self, width: int) -> Learner:
        given = {name: plain(value) for name, value in self.get_params().items()}
        check_choice("kernel", given["kernel"], NAMES)
        for name in ("n_preimages", "steps", "restarts", "degree"):
            check_integer(name, given[name], 1)
        l1 = given["l1"]
        if l1 is None:
            l1 = 1.0 if given["kernel"] in OF_PRODUCTS and given["learn_points"] else 0.0
        if not l1 >= 0:
            raise ValueError(f"l1 is {given['l1']!r}; expected a number of at least 0, or None")
        if l1 and given["kernel"] not in OF_PRODUCTS:
            raise ValueError(
                f"l1 is {l1} with kernel {given['kernel']!r}, where a coordinate of zero still "
                f"counts; expected 0, or a kernel of products: {', '.join(OF_PRODUCTS)}"
            )
        gamma = given["gamma"] if given["gamma"] is not None else 1.0 / width**0.5
        if not gamma > 0 or not given["ridge"] >= 0 or not given["lr"] > 0:
            raise ValueError(
                f"gamma is {given['gamma']!r}, ridge {given['ridge']!r}, lr {given['lr']!r}; "
                "expected positive numbers (ridge may be 0)"
            )
        kernel = PointKernel(given["kernel"], gamma, given["degree"], given["coef0"])
        return Learner(
            kernel, given["n_preimages"], l1, given["ridge"], given["steps"], given["lr"],
            seed_of(self.random_state), bool(given["learn_points"]), given["restarts"],
        )  # fmt: skip

    def _read(self, X: Any) -> Tensor:
        table = validate_data(self, X, dtype=np.float64, reset=False)
        return torch.from_numpy((table - self._mean) / self._spread)

    def _scale(self, X: Any) -> Tensor:
        table = validate_data(self, X, dtype=np.float64)
        self._mean = table.mean(0)
        spread = table.std(0)
        self._spread = np.where(spread > 1e-12 * (1 + abs(self._mean)), spread, 1.0)
        return torch.from_numpy((table - self._mean) / self._spread)

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.machine_(self._read(X))

    def _content(self) -> dict[str, Any]:
        kernel = self.machine_.kernel
        return {"kernel": [kernel.name, kernel.gamma, kernel.degree, kernel.coef0]}

    def _tensors(self) -> Mapping[str, Tensor]:
        f, scale = self.machine_, (self._mean, self._spread)
        tensors = (f.points, f.alpha, f.bias, *map(torch.from_numpy, scale))
        return dict(zip(("points", "alpha", "bias", "mean", "spread"), tensors, strict=True))

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        name, *numbers = content["kernel"]
        check_choice("kernel", name, NAMES)
        kernel = PointKernel(name, *map(finite, numbers))
        self.machine_ = Machine(kernel, *(tensors[n] for n in ("points", "alpha", "bias")))
        self._mean, self._spread = (tensors[name].numpy() for name in ("mean", "spread"))
        classes = len(getattr(self, "classes_", (0, 1)))
        if classes < 2 or self.machine_.alpha.shape[1] != (1 if classes == 2 else classes):
            raise ValueError(f"alpha is {tuple(self.machine_.alpha.shape)} for {classes} classes")


class SparseKernelClassifier(ClassifierMixin, SparseKernelEstimator):  # type: ignore[misc]
    """A kernel machine of a few learned points, each of a few columns, for small models that can be
    read (Huusari et al. 2021): f(x) = sum_t alpha_t kappa(u_t, x) + b, by the logistic loss.

    Columns are brought to mean 0 and deviation 1.

    Parameters
    ----------
    n_preimages : T, how many points.
    kernel, gamma, degree, coef0 : "poly", "sigmoid", "linear" or "rbf"; gamma is 1 / sqrt(columns)
        by default.
    l1 : penalty of the points; None is 1, and 0 for "rbf", which refuses another: there a
        coordinate of zero still counts.
    ridge : penalty of alpha^T K alpha.
    learn_points : False keeps points that are drawn from X; regressions are then solved exactly.
    steps, lr, restarts : of Adam; the best of `restarts` is kept, by the objective, or with a
        penalty by Schwarz's criterion, which weighs the loss against the numbers of a machine.

    Attributes
    ----------
    preimages_ : the points, in the units of X, NaN in columns that do not count.
    columns_, n_numbers_ : the columns that count, and how many numbers the machine is.
    """

    classes_: npt.NDArray[Any]

    def fit(self, X: Any, y: Any) -> SparseKernelClassifier:
        """Fit to rows X (n, d) and their labels y (n,)."""
        x = self._scale(X)
        self.classes_, labels = read_labels(y, x, type(self).__name__)
        with alone():
            self.machine_ = self._learner(x.shape[1]).fit(x, torch.from_numpy(labels), _logistic)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (n, classes), in the order of `classes_`."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], 1)
        found: Floats = scores.softmax(1).numpy()
        return found

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each row (n,)."""
        chosen = self.predict_proba(X).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[chosen]
        return labels


class SparseKernelRegressor(RegressorMixin, SparseKernelEstimator):  # type: ignore[misc]
    """A kernel machine of a few learned points for numbers, by the mean square of y with deviation
    1; parameters and attributes are those of `SparseKernelClassifier`."""

    def fit(self, X: Any, y: Any) -> SparseKernelRegressor:
        """Fit to rows X (n, d) and their values y (n,)."""
        x = self._scale(X)
        values = read_values(y, x, type(self).__name__)
        self._centre, self._deviation = float(values.mean()), float(values.std()) or 1.0
        target = torch.from_numpy((values - self._centre) / self._deviation)[:, None]
        with alone():
            self.machine_ = self._learner(x.shape[1]).fit(x, target, F.mse_loss)
        return self

    def predict(self, X: Any) -> Floats:
        """A number for each row (n,)."""
        found: Floats = self._scores(X)[:, 0].numpy()
        return self._centre + self._deviation * found

    def _content(self) -> dict[str, Any]:
        return {**super()._content(), "values": [self._centre, self._deviation]}

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self._centre, self._deviation = content["values"]
        super()._restore(content, tensors)


def _logistic(outputs: Tensor, labels: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], labels.to(outputs))
    return F.cross_entropy(outputs, labels)
