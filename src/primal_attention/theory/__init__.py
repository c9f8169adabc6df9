"""The mathematics: feature maps, the objective J, the kernel in factors, and the exact KSVD."""

from .factors import DenseKernel, Kernel, KernelFactors
from .features import (
    Cosine,
    Elu,
    FeatureMap,
    PositiveRandomFeatures,
    TwoSidedSoftmax,
    make_feature_map,
)
from .objective import energy, gram_energy, objective, trace_term
from .problem import KSVDProblem
from .residuals import KSVDResiduals, ksvd_residuals, residuals_of
from .solver import KSVD, dual_variables, ksvd

__all__ = [
    "KSVD",
    "Cosine",
    "DenseKernel",
    "Elu",
    "FeatureMap",
    "KSVDProblem",
    "KSVDResiduals",
    "Kernel",
    "KernelFactors",
    "PositiveRandomFeatures",
    "TwoSidedSoftmax",
    "dual_variables",
    "energy",
    "gram_energy",
    "ksvd",
    "ksvd_residuals",
    "make_feature_map",
    "objective",
    "residuals_of",
    "trace_term",
]
