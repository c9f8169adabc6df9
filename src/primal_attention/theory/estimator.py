"""Kernel SVD as a scikit-learn transformer: features of both sides of an asymmetric kernel.

The estimator behind the theory of this package: Suykens, "SVD revisited: a new variational
principle, compatible feature maps and nonlinear extensions" (2016), and Tao, Tonin, Patrinos,
Suykens, "Nonlinear SVD with asymmetric kernels" (2023). Needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, Literal

import numpy as np

from ..runs.extras import needs_extra

with needs_extra("train", "KernelSVD needs"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

from ..names import check_choice
from .estimator_kernels import NAMES, KernelName, Matrix, PairKernel
from .estimator_solve import LEARNABLE, Blocks, solve

Side = Literal["left", "right", "both"]
Views = Literal["rows", "columns"]
Compatibility = Literal["pinv", "identity"]
Landmarks = Literal["random", "learned"]

_FLOATS = (np.float64, np.float32)


class KernelSVD(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Singular value decomposition of an asymmetric kernel `K_ij = kappa(x_i, z_j)`, eq. (7):

        K H_r = H_e Sigma        K^T H_e = H_r Sigma

    and the features that it gives any point, as a left (`x`) and as a right one (`z`), eq. (8):

        e(x) = sum_j h_rj kappa(x, z_j)        r(z) = sum_i h_ei kappa(x_i, z)

    `KernelPCA` is the case of one view and a symmetric kernel; here what i is to j may differ
    from what j is to i.

    `views="rows"`: the left points are the rows of X, the right points the rows of `Z`, given
    to `fit`, or those of X again. `views="columns"`: the right points are the columns of X,
    as in the SVD of a matrix (out- and in-links of a directed graph, users and items). Rows and
    columns have different widths in general and are made compatible: `"pinv"` maps a row x to
    `x X^+`, so that the linear kernel gives back the SVD of X; `"identity"` takes them as they
    are and expects a square X. With `kernel="precomputed"` X is K itself, of any shape.

    `kernel`: "linear", "cosine", "rbf", "sne" (asymmetric Gaussian, rows sum to one), "poly",
    "precomputed", or a callable `(X, Z, **kernel_params) -> (N, M)`. `gamma` defaults to
    1 / width. `center` centres the features of both views. `n_components=None` keeps every
    singular value that is not zero to working precision.

    `n_landmarks` turns on the asymmetric Nystrom approximation for large N and M: with n random
    rows I and 2n columns J, `K ~ K[:, J] K[I, J]^+ K[I, :]` with a pseudo-inverse of rank n / 2 (at
    least `n_components`; all of it where I and J are all points), whose SVD is computed exactly in
    O((N + M) n^2); K is never formed, and new points meet the landmarks only. The sums of "sne" are
    then estimated from the columns J. `landmarks="learned"` takes points in their place that are no
    rows of X: they start at random ones and descend the error on random blocks of K, see
    `preimages.learned_landmarks`; for the kernels "linear", "rbf" and "poly".

    With landmarks, `nystrom_error_` is the relative error
    `||K - K~||_F / ||K||_F`, measured on `nystrom_error_rows_` rows of K (512 random ones, or
    all where there are fewer).

    Fitted: `singular_values_ (s,)`, `left_vectors_` H_e (N, s), `right_vectors_` H_r (M, s),
    `explained_variance_ratio_ (s,)`: shares of `||K||_F^2` (centred if `center`).
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: KernelName | Callable[..., Any] = "cosine",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        kernel_params: Mapping[str, Any] | None = None,
        views: Views = "rows",
        compatibility: Compatibility = "pinv",
        center: bool = False,
        n_landmarks: int | None = None,
        landmarks: Landmarks = "random",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.views = views
        self.compatibility = compatibility
        self.center = center
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, Z: Any = None) -> KernelSVD:
        """Fit to the rows of X (N, d) and, with `views="rows"`, of Z (M, d); y is ignored."""
        self._check_options()
        X = validate_data(self, X, dtype=_FLOATS).astype(np.float64, copy=False)
        left, right = self._points(X, Z)
        width = X.shape[1] if right is None else right.shape[1]
        kernel = PairKernel(
            self.kernel, 1.0 / width if self.gamma is None else self.gamma, self.degree,
            self.coef0, self.kernel_params or {},
        )  # fmt: skip
        blocks = Blocks(kernel, left, right)
        random = check_random_state(self.random_state)
        learned = self.landmarks == "learned"
        found = solve(
            blocks, self.n_components, self.n_landmarks, bool(self.center), random, learned=learned
        )
        self._fitted = found
        self.singular_values_ = found.sigma
        self.left_vectors_, self.right_vectors_ = found.left, found.right
        total = found.energy if found.energy > 0 else 1.0
        self.explained_variance_ratio_ = found.sigma**2 / total
        if self.n_landmarks is not None:
            self.nystrom_error_ = found.error
            self.nystrom_error_rows_ = found.error_rows
        return self

    def fit_transform(self, X: Any, y: Any = None, *, Z: Any = None, side: Side = "left") -> Any:
        """Fit and return the scores of the fitted points: (N, s), (M, s), or both."""
        check_choice("side", side, ("left", "right", "both"))
        self.fit(X, y, Z=Z)
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        e = (self.left_vectors_ * self.singular_values_).astype(dtype)
        r = (self.right_vectors_ * self.singular_values_).astype(dtype)
        return {"left": e, "right": r, "both": (e, r)}[side]

    def transform(self, X: Any, side: Side = "left", Z: Any = None) -> Any:
        """The scores of new points: e of the rows of X as left points, r as right ones.

        `side="both"` returns e of X and r of Z (of X again with `views="rows"`, where Z is not
        given). Of a precomputed kernel, the rows are the kernel of each new point with all the
        fitted points of the other side: (n, M) on the left, (n, N) on the right. With
        `views="columns"` a new right point is a column of N numbers, given as a row.
        """
        check_choice("side", side, ("left", "right", "both"))
        check_is_fitted(self)
        if side == "right":
            return self._right_scores(X)
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
        if side == "left":
            return self._left_scores(X)
        if Z is None and (self.views == "columns" or self.kernel == "precomputed"):
            raise ValueError('side="both" was asked for without Z; expected the right points as Z')
        return self._left_scores(X), self._right_scores(X if Z is None else Z)

    def inverse_transform(self, left: Any = None, right: Any = None) -> Matrix:
        """The kernel from scores: `e Sigma^-1 r^T (n, m)`; by default those of the fitted points.

        Without arguments the means that `center` removed are put back, so that all components
        together give K; scores of other points give the centred kernel.
        """
        check_is_fitted(self)
        found = self._fitted
        sigma = found.sigma
        inverse = np.where(sigma > 0, 1.0 / np.where(sigma > 0, sigma, 1.0), 0.0)
        e = found.left * sigma if left is None else check_array(left, dtype=np.float64)
        r = found.right * sigma if right is None else check_array(right, dtype=np.float64)
        for name, scores in (("left", e), ("right", r)):
            if scores.shape[1] != len(sigma):
                raise ValueError(
                    f"{name} has {scores.shape[1]} components; expected {len(sigma)}, as fitted"
                )
        kernel: Matrix = (e * inverse) @ r.T
        if left is None and right is None and found.means is not None:
            row, column, mean = found.means
            kernel += row[:, None] + column[None, :] - mean
        return kernel

    @property
    def _n_features_out(self) -> int:
        return len(self.singular_values_)

    # -- parts -----------------------------------------------------------------------------------

    def _check_options(self) -> None:
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, NAMES)
        check_choice("views", self.views, ("rows", "columns"))
        check_choice("compatibility", self.compatibility, ("pinv", "identity"))
        check_choice("landmarks", self.landmarks, ("random", "learned"))
        if self.landmarks == "learned":
            if self.n_landmarks is None:
                raise ValueError('landmarks is "learned"; expected n_landmarks, how many')
            if self.kernel not in LEARNABLE:
                raise ValueError(
                    f'landmarks is "learned" with kernel {self.kernel!r}; expected one of '
                    f"{', '.join(LEARNABLE)}"
                )
        for name in ("n_components", "n_landmarks"):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, Integral) or value < 1
            if value is not None and wrong:
                raise ValueError(f"{name} is {value!r}; expected an integer of at least 1, or None")
        if self.gamma is not None and not self.gamma > 0:
            raise ValueError(f"gamma is {self.gamma!r}; expected a positive number, or None")

    def _points(self, X: Matrix, Z: Any) -> tuple[Matrix, Matrix | None]:
        """Left points (N, d) and right points (M, d); a precomputed K (N, M) and None."""
        if Z is not None and (self.views == "columns" or self.kernel == "precomputed"):
            raise ValueError('Z was given; expected it with views="rows" and a kernel to evaluate')
        self._compatible = None
        if self.kernel == "precomputed":
            return X, None
        if self.views == "columns":
            if self.compatibility == "pinv" and not callable(self.kernel):
                self._compatible = np.linalg.pinv(X)  # (M, N)
            elif not callable(self.kernel) and X.shape[0] != X.shape[1]:
                raise ValueError(
                    f'X has shape {X.shape}; compatibility="identity" expects a square matrix'
                )
            return self._compatibly(X), np.ascontiguousarray(X.T)
        right = X if Z is None else check_array(Z, dtype=np.float64)
        if right.shape[1] != X.shape[1] and not callable(self.kernel):
            raise ValueError(
                f"Z has {right.shape[1]} features; expected {X.shape[1]}, as X (a callable kernel "
                "may compare different ones)"
            )
        return X, right

    def _compatibly(self, X: Matrix) -> Matrix:
        return X if self._compatible is None else X @ self._compatible

    def _left_scores(self, X: Any) -> Any:
        points = self._compatibly(X.astype(np.float64, copy=False))
        return self._fitted.left_scores(points).astype(X.dtype, copy=False)

    def _right_scores(self, Z: Any) -> Any:
        points = check_array(Z, dtype=_FLOATS)
        expected = self._fitted.right_width
        if points.shape[1] != expected:
            raise ValueError(
                f"the right points have {points.shape[1]} features; expected {expected}, as fitted"
            )
        scores = self._fitted.right_scores(points.astype(np.float64, copy=False))
        return scores.astype(points.dtype, copy=False)
