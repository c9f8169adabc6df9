"""Estimators for time series in the style of scikit-learn and aeon."""

from .classifier import PrimalFormerClassifier
from .regressor import PrimalFormerRegressor
from .rocket import PrimalRocketClassifier, PrimalRocketRegressor

__all__ = [
    "PrimalFormerClassifier",
    "PrimalFormerRegressor",
    "PrimalRocketClassifier",
    "PrimalRocketRegressor",
]
