"""The classifier as one of aeon's, for code that asks for aeon's own base class.

from primal_attention.train.estimator.aeon import AeonPrimalFormerClassifier

PrimalFormerClassifier takes aeon's data as it is; only what demands a `BaseClassifier` needs this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from .classifier import PrimalFormerClassifier

try:
    from aeon.classification import BaseClassifier  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise ImportError(f"AeonPrimalFormerClassifier needs {error.name}; install 'aeon'") from error


class AeonPrimalFormerClassifier(BaseClassifier):  # type: ignore[misc]
    """Delegates to a `PrimalFormerClassifier`, one with its defaults if none is given.

    `random_state` replaces that of the classifier unless it is None. `classifier_` is fitted.
    """

    _tags = {  # noqa: RUF012 (aeon reads it so)
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "algorithm_type": "deeplearning",
    }

    def __init__(
        self,
        classifier: PrimalFormerClassifier | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.classifier = classifier
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> AeonPrimalFormerClassifier:
        given = PrimalFormerClassifier() if self.classifier is None else clone(self.classifier)
        if self.random_state is not None:
            given.set_params(random_state=self.random_state)
        self.classifier_ = given.fit(X, y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[Any]:
        return self.classifier_.predict(X)

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        return self.classifier_.predict_proba(X)

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small and quick, for aeon's checks."""
        small = PrimalFormerClassifier(width=8, heads=2, feedforward=8, rank=4, epochs=2)
        return {"classifier": small}
