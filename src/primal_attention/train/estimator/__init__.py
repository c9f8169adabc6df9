"""Estimators for time series in the style of scikit-learn and aeon."""

from .classifier import PrimalFormerClassifier
from .rocket import PrimalRocketClassifier, PrimalRocketRegressor

__all__ = ["PrimalFormerClassifier", "PrimalRocketClassifier", "PrimalRocketRegressor"]
