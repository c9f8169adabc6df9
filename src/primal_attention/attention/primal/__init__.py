"""Primal-Attention: `layer.py` is the module, `compute.py` one call of it, `plain.py` the readable
truth, `steps.py` with `given.py` and `tied.py` the hand-written passes, `folded.py` their inference
form after `fold.py`."""

from .fold import fold_
from .layer import PrimalAttention
from .state import PrimalState

__all__ = ["PrimalAttention", "PrimalState", "fold_"]
