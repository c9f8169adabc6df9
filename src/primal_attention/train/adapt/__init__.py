"""Convert a model, then bring back what it could: `adapt_(model, batches)`."""

from .adapting import adapt_
from .settings import Adaptation, AdaptSettings, Evaluation

__all__ = ["AdaptSettings", "Adaptation", "Evaluation", "adapt_"]
