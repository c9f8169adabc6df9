"""Networks assembled from attentions."""

from .classifier import SequenceClassifier

__all__ = ["SequenceClassifier"]
