"""Primal-Attention: self-attention as an asymmetric kernel SVD, computed in the primal.

Names are imported when they are first used, so that the command can answer `--help` without torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import distributed as distributed
    from .analysis import ksvd_diagnostics, spectrum
    from .attention import (
        CosformerAttention,
        FlowAttention,
        FlowState,
        LinearAttention,
        LinearState,
        LinformerAttention,
        LongformerAttention,
        NoneAttention,
        NoneState,
        NystromAttention,
        PerformerAttention,
        PrimalAttention,
        PrimalState,
        ReformerAttention,
        SoftAttention,
        SoftmaxAttention,
        SoftmaxState,
        YosoAttention,
        attention_info,
        available_attentions,
        fold_,
        make_attention,
    )
    from .convert import convert_, load, plan, revert_, save
    from .ksvd import (
        KSVD,
        DenseKernel,
        KernelFactors,
        KSVDProblem,
        KSVDResiduals,
        ksvd,
        ksvd_residuals,
    )
    from .ksvd.estimator import KernelSVD as KernelSVD
    from .ksvd.loss import ksvd_loss
    from .train.estimator import PrimalFormerClassifier as PrimalFormerClassifier

__version__ = "0.1.0"

__all__ = [
    "KSVD",
    "CosformerAttention",
    "DenseKernel",
    "FlowAttention",
    "FlowState",
    "KSVDProblem",
    "KSVDResiduals",
    "KernelFactors",
    "LinearAttention",
    "LinearState",
    "LinformerAttention",
    "LongformerAttention",
    "NoneAttention",
    "NoneState",
    "NystromAttention",
    "PerformerAttention",
    "PrimalAttention",
    "PrimalState",
    "ReformerAttention",
    "SoftAttention",
    "SoftmaxAttention",
    "SoftmaxState",
    "YosoAttention",
    "attention_info",
    "available_attentions",
    "convert_",
    "fold_",
    "ksvd",
    "ksvd_diagnostics",
    "ksvd_loss",
    "ksvd_residuals",
    "load",
    "make_attention",
    "plan",
    "revert_",
    "save",
    "spectrum",
]

# where a name lives, if not in the rooms `attention` and `ksvd`
_HOMES = {
    "spectrum": ".analysis.spectra",
    "ksvd_diagnostics": ".analysis.diagnostics",
    "KernelSVD": ".ksvd.estimator",  # needs an extra, so `import *` leaves it out
    **dict.fromkeys(("plan", "convert_", "revert_", "save", "load"), ".convert"),
    "ksvd_loss": ".ksvd.loss",
    "PrimalFormerClassifier": ".train.estimator",  # likewise
}


_ROOMS = ("distributed",)  # modules that are used by their names


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = (_HOMES[name],) if name in _HOMES else (".attention", ".ksvd")
    for home in homes:
        module = import_module(home, __name__)
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AssertionError(f"{name} is in no room")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES, *_ROOMS})


class _Package(ModuleType):
    """The room `ksvd`, when it is imported, must not hide the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "ksvd" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
