"""A frozen bank of random kernels and ridge regression: estimators that fit in seconds."""

from .classifier import PrimalRocketClassifier
from .regressor import PrimalRocketRegressor

__all__ = ["PrimalRocketClassifier", "PrimalRocketRegressor"]
