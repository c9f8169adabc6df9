"""Estimators for tables that learn from new labelled rows without being fitted again."""

from .classifier import PrimalTableClassifier
from .regressor import PrimalTableRegressor

__all__ = ["PrimalTableClassifier", "PrimalTableRegressor"]
