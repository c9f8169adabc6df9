"""Primal-Attention: `layer.py` is to be read from top to bottom. Beside it are the parameters, the
dual view, the folded form, a readout that is a Gaussian, and the variant for decoders with rotary
positions."""

from .folded import FoldedPrimalAttention, fold_
from .layer import PrimalAttention
from .readout import kl_loss, variational_
from .state import PrimalState

__all__ = [
    "FoldedPrimalAttention",
    "PrimalAttention",
    "PrimalState",
    "fold_",
    "kl_loss",
    "variational_",
]
