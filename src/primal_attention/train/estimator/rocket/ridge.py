"""Ridge regression with the closed form of leave-one-out, for each part of the features.

For columns P that are centred and orthogonal, P^T P = diag(s), and centred targets Y, the fit at
penalty alpha, its leverages and the prediction of case i by all others are

    F = P (s + alpha)^{-1} P^T Y,    h_i = sum_r P_ir^2 / (s_r + alpha),
    y_i - (y_i - f_i) / (1 - h_i - 1/N).

The intercept, which is not penalised, has the leverage 1/N: the constant direction. The prediction
of a whole fold by the cases outside of it is likewise, with H the block of leverages of the fold,

    y - (I - H - 1/N)^{-1} (y - f),    H_ij = sum_r P_ir P_jr / (s_r + alpha).

The dual form takes P from the Gram matrix of all cases. Above a number of cases the primal form
takes it from the landmarks' kernel functions (Williams, Seeger: Using the Nystroem Method, NIPS
2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ALPHAS = torch.logspace(-4, 3, 15, dtype=torch.float64)  # times the mean diagonal of the Gram
JITTER = 1e-5  # times the mean diagonal: the rounding of a Gram matrix in float32
PIECE = 4096  # columns that are in float64 at once
NEGLIGIBLE = 1e-7  # a column whose deviation is below is constant


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> (x - mean) factor: columns of the same deviation, rows of mean square 1."""

    mean: Tensor  # (F,)
    factor: Tensor  # (F,), 0 where a column is constant

    @classmethod
    def fit(cls, features: Tensor) -> Scaling:
        deviation, mean = torch.std_mean(features, 0, correction=0)
        varies = deviation > NEGLIGIBLE * mean.abs().clamp(min=1.0)
        weight = max(int(varies.sum()), 1) ** -0.5
        return cls(mean, torch.where(varies, weight / deviation, 0.0))

    def apply_(self, features: Tensor) -> Tensor:
        """In place."""
        return features.sub_(self.mean).mul_(self.factor)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted part: scores = features @ weights + intercept."""

    weights: Tensor  # (F, c), for features that are not scaled
    intercept: Tensor  # (c,)
    alpha: float  # times the mean diagonal

    def scores(self, features: Tensor) -> Tensor:
        """(N, c) in float64."""
        return features.double() @ self.weights.double() + self.intercept


@dataclass(frozen=True, eq=False)
class Unseen:
    """Scores (N, c) of each case by the ridge without it."""

    alone: Tensor  # all others are there
    by_folds: Tensor | None  # those of its fold are not; None without folds


def fit_ridge(
    features: Tensor,
    scaling: Scaling,
    targets: Tensor,
    others: Tensor | None = None,
    folds: Sequence[Tensor] = (),
) -> tuple[Ridge, Unseen]:
    """The ridge, and what it says of cases that are left out, alone and by folds of the rows.

    features (m, F) are the scaled ones of the landmarks. Without others, the landmarks are all
    cases: the dual form. Otherwise others (N - m, m) are the products of the other cases' features
    with the landmarks', and targets (N, c) begin with the landmarks': the primal form.
    """
    kernel = (features @ features.T).double()  # (m, m)
    columns = _dual(kernel) if others is None else _primal(kernel, others.double())
    centre = targets.mean(0)
    p, y = columns.values, targets - centre
    filters, alpha, left_out = _choose(p, columns.squares, y)
    beta = filters * (p.T @ y)
    unseen = Unseen(left_out + centre, _without(p, filters, y, folds) + centre if folds else None)
    coefficients = columns.of_kernel @ beta  # (m, c)
    pieces = [piece.T.double() @ coefficients for piece in features.split(PIECE, 1)]
    # float32 as they are kept, so that the intercept fits to them
    weights = (torch.cat(pieces) * scaling.factor.double()[:, None]).float()
    intercept = centre - columns.shift @ beta - scaling.mean.double() @ weights.double()
    return Ridge(weights, intercept, alpha), unseen


@dataclass(frozen=True, eq=False)
class _Columns:
    """P = k of_kernel - shift, where k (N, m) are the kernel functions of the landmarks."""

    values: Tensor  # (N, r), P
    squares: Tensor  # (r,), s
    of_kernel: Tensor  # (m, r)
    shift: Tensor  # (r,)


def _dual(kernel: Tensor) -> _Columns:
    """P = U s^{1/2} from the centred Gram matrix U s U^T of all cases."""
    mean = kernel.mean(0)
    centred = kernel - mean - mean[:, None] + mean.mean()
    s, u = torch.linalg.eigh(centred)
    kept = s > JITTER * 1e-3 * _mean_diagonal(kernel)
    s, u = s[kept], u[:, kept]
    of_kernel = u / s.sqrt()
    return _Columns(u * s.sqrt(), s, of_kernel, mean @ of_kernel)


def _primal(kernel: Tensor, others: Tensor) -> _Columns:
    """P from all cases' coordinates k L^{-T} in the span of the landmarks, kernel = L L^T."""
    jitter = JITTER * _mean_diagonal(kernel) + torch.finfo(torch.float64).tiny
    lower = torch.linalg.cholesky(kernel + jitter * torch.eye(len(kernel), dtype=kernel.dtype))
    every = torch.cat([kernel, others])  # (N, m)
    z = torch.linalg.solve_triangular(lower, every.T, upper=False).T
    mean = z.mean(0)
    z = z - mean
    s, q = torch.linalg.eigh(z.T @ z)
    of_kernel = torch.linalg.solve_triangular(lower.T, q, upper=True)
    return _Columns(z @ q, s.clamp(min=0.0), of_kernel, mean @ q)


def _choose(p: Tensor, s: Tensor, y: Tensor) -> tuple[Tensor, float, Tensor]:
    """The factors 1 / (s + alpha) (r, 1) of the penalty with the least squared error of the
    left-out cases, that penalty, and the predictions of those cases (N, c)."""
    cases = len(p)
    scale = float(s.sum()) / cases or 1.0  # all features constant: any penalty is the same
    alphas = ALPHAS * scale
    filters = 1.0 / (s[:, None] + alphas)  # (r, alphas)
    free = (1.0 - (p * p) @ filters - 1.0 / cases).clamp(min=1e-9)  # (N, alphas)
    products = p.T @ y  # (r, c)
    least, chosen, left_out = torch.inf, 0, y
    for i in range(len(alphas)):
        residuals = (y - p @ (filters[:, i, None] * products)) / free[:, i, None]
        error = float(residuals.square().sum())
        if error < least:
            least, chosen, left_out = error, i, y - residuals
    return filters[:, chosen, None], float(ALPHAS[chosen]), left_out


def _without(p: Tensor, filters: Tensor, y: Tensor, folds: Sequence[Tensor]) -> Tensor:
    """The predictions (N, c) of the cases of each fold by those outside of it."""
    residuals = y - p @ (filters * (p.T @ y))
    found = torch.empty_like(y)
    for rows in folds:
        part = p[rows]
        free = torch.eye(len(rows), dtype=p.dtype) - part @ (filters * part.T) - 1.0 / len(p)
        found[rows] = y[rows] - torch.linalg.solve(free, residuals[rows])
    return found


def _mean_diagonal(kernel: Tensor) -> float:
    return float(kernel.diagonal().mean())
