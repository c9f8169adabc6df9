"""The classifiers as aeon's, for code that asks for aeon's own base class.

from primal_attention.train.estimator.aeon import AeonPrimalFormerClassifier

Our classifiers take aeon's data as it is; only what demands a `BaseClassifier` needs this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from .classifier import PrimalFormerClassifier
from .rocket import PrimalRocketClassifier

try:
    from aeon.classification import BaseClassifier  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise ImportError(f"AeonPrimalFormerClassifier needs {error.name}; install 'aeon'") from error


class _Delegating(BaseClassifier):  # type: ignore[misc]
    """Fits a copy of `classifier`, or one of its kind with the defaults, as `classifier_`."""

    _tags = {  # noqa: RUF012 (aeon reads it so)
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
    }
    _kind: type[Any]

    def __init__(
        self,
        classifier: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.classifier = classifier
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> _Delegating:
        given = self._kind() if self.classifier is None else clone(self.classifier)
        if self.random_state is not None:
            given.set_params(random_state=self.random_state)
        self.classifier_ = given.fit(X, y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.classifier_.predict(X)
        return found

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = self.classifier_.predict_proba(X)
        return found


class AeonPrimalFormerClassifier(_Delegating):
    """Delegates to a `PrimalFormerClassifier`, one with its defaults if none is given.

    `random_state` replaces that of the classifier unless it is None. `classifier_` is fitted.
    """

    _tags = {"algorithm_type": "deeplearning"}  # noqa: RUF012
    _kind = PrimalFormerClassifier

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small and quick, for aeon's checks."""
        small = PrimalFormerClassifier(
            ensemble="net", width=8, heads=2, feedforward=8, steps=2, epochs=1
        )
        return {"classifier": small}


class AeonPrimalRocketClassifier(_Delegating):
    """Delegates to a `PrimalRocketClassifier`, one with its defaults if none is given.

    `random_state` replaces that of the classifier unless it is None. `classifier_` is fitted.
    """

    _tags = {"algorithm_type": "convolution"}  # noqa: RUF012
    _kind = PrimalRocketClassifier

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small and quick, for aeon's checks."""
        return {"classifier": PrimalRocketClassifier(groups=2)}
