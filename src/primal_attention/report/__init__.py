"""Pictures from results. Needs matplotlib: install 'primal-attention[plot]'."""

from .figures import compare, confusion, curves
from .runs import Trained, read_run

__all__ = ["Trained", "compare", "confusion", "curves", "read_run"]
