"""The estimators as aeon's, for code that asks for aeon's own base classes.

from primal_attention.train.estimator.aeon import AeonPrimalFormerClassifier

Our estimators take aeon's data as it is; only what demands a `BaseClassifier` or a `BaseRegressor`
needs this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from .classifier import PrimalFormerClassifier
from .regressor import PrimalFormerRegressor
from .rocket import PrimalRocketClassifier, PrimalRocketRegressor

try:
    from aeon.classification import BaseClassifier  # type: ignore[import-untyped]
    from aeon.regression import BaseRegressor  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise ImportError(f"AeonPrimalFormerClassifier needs {error.name}; install 'aeon'") from error

TAGS = {
    "X_inner_type": ["np-list", "numpy3D"],
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
}
SMALL_NET = {
    "ensemble": "net", "networks": 1, "folds": 0, "width": 8, "heads": 2, "feedforward": 8,
    "steps": 2, "epochs": 1,
}  # fmt: skip
SMALL_BANK = {"groups": 2}


def _fitted(given: Any, kind: type[Any], random_state: Any, X: Any, y: Any) -> Any:
    """A copy of what was given, or one of its kind with the defaults, fitted."""
    own = kind() if given is None else clone(given)
    if random_state is not None:
        own.set_params(random_state=random_state)
    return own.fit(X, y)


class _Classifier(BaseClassifier):  # type: ignore[misc]
    """Fits a copy of `classifier`, or one of its kind with the defaults, as `classifier_`."""

    _tags = TAGS
    _kind: type[Any]
    _small: dict[str, Any]

    def __init__(
        self,
        classifier: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.classifier = classifier
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> _Classifier:
        self.classifier_ = _fitted(self.classifier, self._kind, self.random_state, X, y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.classifier_.predict(X)
        return found

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = self.classifier_.predict_proba(X)
        return found

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small and quick, for aeon's checks."""
        return {"classifier": cls._kind(**cls._small)}


class _Regressor(BaseRegressor):  # type: ignore[misc]
    """Fits a copy of `regressor`, or one of its kind with the defaults, as `regressor_`."""

    _tags = TAGS
    _kind: type[Any]
    _small: dict[str, Any]

    def __init__(
        self,
        regressor: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.regressor = regressor
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> _Regressor:
        self.regressor_ = _fitted(self.regressor, self._kind, self.random_state, X, y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = self.regressor_.predict(X)
        return found

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small and quick, for aeon's checks."""
        return {"regressor": cls._kind(**cls._small)}


class AeonPrimalFormerClassifier(_Classifier):
    """Delegates to a `PrimalFormerClassifier`, one with its defaults if none is given.

    `random_state` replaces that of the classifier unless it is None. `classifier_` is fitted.
    """

    _tags = {"algorithm_type": "deeplearning"}  # noqa: RUF012 (aeon reads it so)
    _kind, _small = PrimalFormerClassifier, SMALL_NET


class AeonPrimalFormerRegressor(_Regressor):
    """Delegates to a `PrimalFormerRegressor`, one with its defaults if none is given.

    `random_state` replaces that of the regressor unless it is None. `regressor_` is fitted.
    """

    _tags = {"algorithm_type": "deeplearning"}  # noqa: RUF012
    _kind, _small = PrimalFormerRegressor, SMALL_NET


class AeonPrimalRocketClassifier(_Classifier):
    """Delegates to a `PrimalRocketClassifier`, one with its defaults if none is given.

    `random_state` replaces that of the classifier unless it is None. `classifier_` is fitted.
    """

    _tags = {"algorithm_type": "convolution"}  # noqa: RUF012
    _kind, _small = PrimalRocketClassifier, SMALL_BANK


class AeonPrimalRocketRegressor(_Regressor):
    """Delegates to a `PrimalRocketRegressor`, one with its defaults if none is given.

    `random_state` replaces that of the regressor unless it is None. `regressor_` is fitted.
    """

    _tags = {"algorithm_type": "convolution"}  # noqa: RUF012
    _kind, _small = PrimalRocketRegressor, SMALL_BANK
