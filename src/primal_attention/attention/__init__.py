"""Every attention mechanism behind one interface.

A file of this folder that registers a mechanism is all that it takes: it is found here, and what it
lists in `__all__` is exported.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from .primal import PrimalAttention, PrimalState, fold_, kl_loss, variational_
from .registry import (
    AttentionInfo,
    attention_info,
    available_attentions,
    make_attention,
    register,
)

__all__ = [
    "AttentionInfo",
    "PrimalAttention",
    "PrimalState",
    "attention_info",
    "available_attentions",
    "fold_",
    "kl_loss",
    "make_attention",
    "register",
    "variational_",
]

for _file in iter_modules(__path__):
    if _file.name not in ("page", "primal"):  # a program; what is above
        _module = import_module(f".{_file.name}", __name__)
        _names = getattr(_module, "__all__", [])
        globals().update({name: getattr(_module, name) for name in _names})
        __all__ += _names

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # what is found
