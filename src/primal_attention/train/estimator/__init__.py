"""Estimators in the style of scikit-learn: time series, tables, bags, lists."""

from .classifier import PrimalFormerClassifier
from .regressor import PrimalFormerRegressor
from .rocket import PrimalRocketClassifier, PrimalRocketRegressor
from .table import PrimalTableClassifier, PrimalTableRegressor

__all__ = [
    "PrimalFormerClassifier",
    "PrimalFormerRegressor",
    "PrimalRocketClassifier",
    "PrimalRocketRegressor",
    "PrimalTableClassifier",
    "PrimalTableRegressor",
]
