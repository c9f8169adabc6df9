"""Pictures from results. Needs matplotlib: install 'primal-attention[plot]'."""

from .figures import compare, confusion, curves
from .history import History, read_run

__all__ = ["History", "compare", "confusion", "curves", "read_run"]
