"""Primal-Attention: self-attention as an asymmetric kernel SVD, computed in the primal."""

from .attention import (
    PrimalAttention,
    PrimalState,
    SoftmaxAttention,
    SoftmaxState,
    attention_info,
    available_attentions,
    fold_,
    make_attention,
)
from .ksvd import (
    KSVD,
    DenseKernel,
    KernelFactors,
    KSVDProblem,
    KSVDResiduals,
    ksvd,
    ksvd_residuals,
)
from .ksvd.loss import ksvd_loss

__version__ = "0.1.0"

__all__ = [
    "KSVD",
    "DenseKernel",
    "KSVDProblem",
    "KSVDResiduals",
    "KernelFactors",
    "PrimalAttention",
    "PrimalState",
    "SoftmaxAttention",
    "SoftmaxState",
    "attention_info",
    "available_attentions",
    "fold_",
    "ksvd",
    "ksvd_loss",
    "ksvd_residuals",
    "make_attention",
]
