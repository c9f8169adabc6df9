"""Kernels between two data sources, for the estimator `KernelSVD`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import normalize

Matrix = npt.NDArray[np.float64]
KernelName = Literal["linear", "cosine", "rbf", "sne", "poly", "precomputed"]
NAMES = ("linear", "cosine", "rbf", "sne", "poly", "precomputed")


@dataclass
class PairKernel:
    """`kappa(x, z)` between the rows of X (N, d) and of Z (M, d).

    `linear` <x, z>; `cosine` <x, z> / (|x| |z|); `rbf` exp(-gamma |x - z|^2); `poly`
    (gamma <x, z> + coef0)^degree; `sne` exp(-gamma |x - z|^2) divided by its sum over the right
    points that were fitted: the asymmetric Gaussian of stochastic neighbour embedding. A callable
    is handed X, Z and `params` and returns (N, M); the widths of X and Z may then differ.
    """

    name: KernelName | Callable[..., Any]
    gamma: float
    degree: float
    coef0: float
    params: Mapping[str, Any]
    count: float = 1.0  # right points that one reference point represents

    def __call__(self, X: Matrix, Z: Matrix) -> Matrix:
        """(N, M), in float64. Of "sne", the rows are normalised over these Z."""
        if callable(self.name):
            matrix = np.asarray(self.name(X, Z, **self.params), dtype=np.float64)
            if matrix.shape != (len(X), len(Z)):
                raise ValueError(
                    f"the kernel returned shape {matrix.shape}; expected ({len(X)}, {len(Z)})"
                )
            return matrix
        if self.name == "rbf":
            return np.exp(-self.gamma * _squared_distances(X, Z))
        if self.name == "sne":
            exponents = -self.gamma * _squared_distances(X, Z)
            return np.exp(exponents - self._log_sums(exponents))
        if self.name == "cosine":
            X, Z = normalize(X), normalize(Z)
        products: Matrix = X @ Z.T
        if self.name == "poly":
            return np.power(self.gamma * products + self.coef0, self.degree)
        return products

    def columns(self, X: Matrix, Z: Matrix, X_sums: Matrix) -> Matrix:
        """As a call, but the rows of "sne" are normalised by sums that are known."""
        if self.name != "sne":
            return self(X, Z)
        return np.exp(-self.gamma * _squared_distances(X, Z) - X_sums[:, None])

    def log_sums(self, X: Matrix, Z: Matrix) -> Matrix:
        """The logarithm of what "sne" divides each row by, (N,); zero for other kernels."""
        if self.name != "sne":
            return np.zeros(len(X))
        return self._log_sums(-self.gamma * _squared_distances(X, Z))[:, 0]

    def _log_sums(self, exponents: Matrix) -> Matrix:
        top = exponents.max(axis=1, keepdims=True)
        sums = np.exp(exponents - top).sum(axis=1, keepdims=True)
        log_sums: Matrix = top + np.log(sums * self.count)
        return log_sums


def _squared_distances(X: Matrix, Z: Matrix) -> Matrix:
    squares = (X**2).sum(1)[:, None] + (Z**2).sum(1)[None, :] - 2.0 * (X @ Z.T)
    clipped: Matrix = np.maximum(squares, 0.0)  # rounding may leave less
    return clipped
