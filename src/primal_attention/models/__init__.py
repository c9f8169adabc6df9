"""Networks assembled from attentions."""

from .classifier import SequenceClassifier
from .series_net import SeriesNet

__all__ = ["SequenceClassifier", "SeriesNet"]
