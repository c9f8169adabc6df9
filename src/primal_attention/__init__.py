"""Primal-Attention: self-attention as an asymmetric kernel SVD, computed in the primal.

Names are imported when they are first used, so that the command can answer `--help` without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

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
    from .theory import (
        KSVD,
        DenseKernel,
        KernelFactors,
        KSVDProblem,
        KSVDResiduals,
        ksvd,
        ksvd_residuals,
    )
    from .theory.estimator import KernelSVD as KernelSVD
    from .theory.loss import ksvd_loss
    from .train.estimator import PrimalFormerClassifier as PrimalFormerClassifier


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

# where a name lives, if not in the rooms `attention` and `theory`
_HOMES = {
    "spectrum": ".analysis.spectra",
    "ksvd_diagnostics": ".analysis.diagnostics",
    "KernelSVD": ".theory.estimator",  # needs an extra, so `import *` leaves it out
    **dict.fromkeys(("plan", "convert_", "revert_", "save", "load"), ".convert"),
    "ksvd_loss": ".theory.loss",
    "PrimalFormerClassifier": ".train.estimator",  # likewise
}


_ROOMS = ("distributed",)  # modules that are used by their names


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = (_HOMES[name],) if name in _HOMES else (".attention", ".theory")
    for home in homes:
        module = import_module(home, __name__)
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AssertionError(f"{name} is in no room")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES, *_ROOMS})
