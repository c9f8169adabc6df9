"""A time-series classifier in the style of scikit-learn and aeon."""

from .classifier import PrimalFormerClassifier

__all__ = ["PrimalFormerClassifier"]
