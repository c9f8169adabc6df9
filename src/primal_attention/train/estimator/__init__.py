"""Estimators in the style of scikit-learn: time series, tables, bags, lists."""

from .bags import PrimalBagClassifier
from .classifier import PrimalFormerClassifier
from .regressor import PrimalFormerRegressor
from .rerank import Reranker
from .rocket import PrimalRocketClassifier, PrimalRocketRegressor
from .sparse import SparseKernelClassifier, SparseKernelRegressor
from .table import PrimalTableClassifier, PrimalTableRegressor

__all__ = [
    "PrimalBagClassifier",
    "PrimalFormerClassifier",
    "PrimalFormerRegressor",
    "PrimalRocketClassifier",
    "PrimalRocketRegressor",
    "PrimalTableClassifier",
    "PrimalTableRegressor",
    "Reranker",
    "SparseKernelClassifier",
    "SparseKernelRegressor",
]
