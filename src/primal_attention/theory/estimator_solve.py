"""The decomposition behind `KernelSVD`: exact, or by the asymmetric Nystrom approximation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .estimator_kernels import Matrix, PairKernel
from .factors import KernelFactors
from .preimages import PointKernel, learned_landmarks
from .solver import KSVD, KernelLike, ksvd

Indices = npt.NDArray[np.intp]

ERROR_ROWS = 512  # rows of K on which the error of Nystrom is measured
LEARNABLE = ("linear", "rbf", "poly")  # kernels whose landmarks can be learned
STEPS = 150  # of that
_BLOCK = 1 << 22  # entries of K formed at a time for it


@dataclass
class Blocks:
    """Any block of K. `left (N, d)`, `right (M, d)`; where `right` is None, left is K. Landmarks
    that were learned stand after the points, and do not count in the shape."""

    kernel: PairKernel
    left: Matrix
    right: Matrix | None
    learned: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> tuple[int, int]:
        right = self.left.shape[1] if self.right is None else len(self.right)
        return len(self.left) - self.learned[0], right - self.learned[1]

    def learn(self, counts: tuple[int, int], seed: int) -> tuple[Indices, Indices]:
        """Learn so many landmarks of either side; their places."""
        if self.right is None:
            raise ValueError("landmarks of a precomputed kernel cannot be learned")
        n, m = self.shape
        name, kernel = str(self.kernel.name), self.kernel
        made = PointKernel(name, kernel.gamma, kernel.degree, kernel.coef0)
        u, v = learned_landmarks(
            lambda x, z: made(z, x), torch.from_numpy(self.left), torch.from_numpy(self.right),
            counts, steps=STEPS, seed=seed,
        )  # fmt: skip
        self.left = np.concatenate([self.left, u.numpy()])
        self.right = np.concatenate([self.right, v.numpy()])
        self.learned = len(u), len(v)
        return np.arange(n, n + len(u)), np.arange(m, m + len(v))

    def __call__(self, rows: Indices, columns: Indices, log_sums: Matrix) -> Matrix:
        """K[rows, columns], given what "sne" divides these rows by."""
        if self.right is None:
            return self.left[np.ix_(rows, columns)]
        return self.kernel.columns(self.left[rows], self.right[columns], log_sums)

    def log_sums(self, rows: Indices, columns: Indices) -> Matrix:
        """The logarithms of the row sums over these columns, as "sne" takes them."""
        if self.right is None:
            return np.zeros(len(rows))
        return self.kernel.log_sums(self.left[rows], self.right[columns])


@dataclass
class Fitted:
    """A solution, and the linear maps from kernels with reference points to scores."""

    sigma: Matrix  # (s,)
    left: Matrix  # (N, s)
    right: Matrix  # (M, s)
    energy: float  # ||K||_F^2, centred if asked for
    means: tuple[Matrix, Matrix, float] | None  # of rows (N,), of columns (M,), of all
    kernel: PairKernel
    left_points: Matrix | None  # reference points (n, d); None for a precomputed kernel
    right_points: Matrix | None
    rows: Indices  # their rows in K
    columns: Indices
    log_sums: Matrix  # (n,)
    left_map: Matrix  # (m, s): e(x) = kappa(x, right points) left_map - left_offset
    left_offset: Matrix  # (s,)
    right_map: Matrix  # (n, s)
    right_offset: Matrix
    error: float = 0.0
    error_rows: int = 0

    @property
    def right_width(self) -> int:
        return len(self.left) if self.right_points is None else self.right_points.shape[1]

    def left_scores(self, x: Matrix) -> Matrix:
        if self.right_points is None:
            kernel = x[:, self.columns]
        else:
            kernel = self.kernel(x, self.right_points)
        scores: Matrix = kernel @ self.left_map - self.left_offset
        return scores

    def right_scores(self, z: Matrix) -> Matrix:
        if self.left_points is None:
            kernel = z[:, self.rows]
        else:
            kernel = self.kernel.columns(self.left_points, z, self.log_sums).T
        scores: Matrix = kernel @ self.right_map - self.right_offset
        return scores


def solve(
    blocks: Blocks,
    components: int | None,
    landmarks: int | None,
    center: bool,
    random: np.random.RandomState,
    *,
    learned: bool = False,
) -> Fitted:
    n, m = blocks.shape
    everything = np.arange(n), np.arange(m)
    if landmarks is None:
        rows, columns = everything
    elif learned and landmarks < min(n, m):
        counts = (min(n, landmarks), min(m, 2 * landmarks))
        rows, columns = blocks.learn(counts, int(random.randint(2**31 - 1)))
    else:
        rows = np.sort(random.choice(n, min(n, landmarks), False))
        columns = np.sort(random.choice(m, min(m, 2 * landmarks), False))
    blocks.kernel.count = m / len(columns)
    whole_rows = np.concatenate([everything[0], rows[rows >= n]])
    log_sums = blocks.log_sums(whole_rows, columns)
    table = blocks(whole_rows, columns, log_sums)
    tall, corner = table[:n], table[rows]  # K[:, J], K[I, J]
    if not np.isfinite(tall).all():
        raise ValueError("the kernel holds NaN or infinite values; expected finite ones")
    if landmarks is None:
        found, maps, means, energy = _exact(tall, components, center)
        error, error_rows = 0.0, 0
    else:
        wide = blocks(rows, everything[1], log_sums[rows])  # K[I, :]
        whole = len(rows) == n and len(columns) == m
        rank = len(rows) if whole else max(landmarks // 2, components or 1)
        a, b, to_a, to_b = _nystrom_factors(tall, wide, corner, rank)
        error, error_rows = _nystrom_error(blocks, a, b, random)
        found, maps, means, energy = _factored(a, b, to_a, to_b, components, center)
    left_map, left_offset, right_map, right_offset = maps
    right = blocks.right
    return Fitted(
        sigma=found.sigma.numpy(), left=found.left.numpy(), right=found.right.numpy(),
        energy=energy, means=means, kernel=blocks.kernel,
        left_points=None if right is None else blocks.left[rows],
        right_points=None if right is None else right[columns],
        rows=rows, columns=columns, log_sums=log_sums[rows],
        left_map=left_map, left_offset=left_offset,
        right_map=right_map, right_offset=right_offset,
        error=error, error_rows=error_rows,
    )  # fmt: skip


Maps = tuple[Matrix, Matrix, Matrix, Matrix]
Means = tuple[Matrix, Matrix, float] | None
Solution = tuple[KSVD, Maps, Means, float]  # with ||K||_F^2, centred if asked for


def _exact(kernel: Matrix, components: int | None, center: bool) -> Solution:
    row, column, mean = kernel.mean(1), kernel.mean(0), float(kernel.mean())
    centred = kernel - row[:, None] - column[None, :] + mean if center else kernel
    energy = float((centred**2).sum())
    found = _leading(torch.from_numpy(centred), min(kernel.shape), components)
    h_e, h_r = found.left.numpy(), found.right.numpy()
    if not center:
        zero = np.zeros(h_r.shape[1])
        return found, (h_r, zero, h_e, zero), None, energy
    # the means of a new point's own kernel drop out, since centred columns sum to zero
    h_e, h_r = h_e - h_e.mean(0), h_r - h_r.mean(0)
    return found, (h_r, column @ h_r, h_e, row @ h_e), (row, column, mean), energy


def _factored(
    a: Matrix, b: Matrix, to_a: Matrix, to_b: Matrix, components: int | None, center: bool
) -> Solution:
    """The exact SVD of `a b^T`, where a new point has `a(x) = kappa(x, right) to_a`."""
    mean_a, mean_b = (f.mean(0) if center else np.zeros(f.shape[1]) for f in (a, b))
    factors = KernelFactors(torch.from_numpy(a - mean_a), torch.from_numpy(b - mean_b))
    found = _leading(factors, factors.max_rank, components)
    to_e = (factors.b.mT @ found.right).numpy()  # (r, s)
    to_r = (factors.a.mT @ found.left).numpy()
    maps = (to_a @ to_e, mean_a @ to_e, to_b @ to_r, mean_b @ to_r)
    means = (a @ b.mean(0), b @ a.mean(0), float(a.mean(0) @ b.mean(0))) if center else None
    return found, maps, means, float(factors.frobenius_norm() ** 2)


def _leading(kernel: KernelLike, most: int, components: int | None) -> KSVD:
    found = ksvd(kernel, most if components is None else min(components, most))
    if components is not None:
        return found
    kept = max(found.rank, 1)
    return KSVD(found.left[:, :kept], found.right[:, :kept], found.sigma[:kept])


def _nystrom_factors(
    tall: Matrix, wide: Matrix, corner: Matrix, rank: int
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """`K[:, J] K[I, J]^+ K[I, :] = a b^T` and the maps `a = K[:, J] to_a`, `b = K[I, :]^T
    to_b`. The root of the corner goes to either side, which keeps rounding errors small.

    The pseudo-inverse has a rank below the corner's sides. Its smallest singular values are those
    of a few points, not of K, and dividing by them would make the error larger than K itself."""
    u, s, vh = np.linalg.svd(corner, full_matrices=False)
    u, s, vh = u[:, :rank], s[:rank], vh[:rank]
    kept = s > max(corner.shape) * np.finfo(np.float64).eps * max(float(s[0]), 1e-300)
    kept[0] = True
    root = 1.0 / np.sqrt(np.where(s[kept] > 0, s[kept], 1.0))
    to_a, to_b = vh[kept].T * root, u[:, kept] * root
    return tall @ to_a, wide.T @ to_b, to_a, to_b


def _nystrom_error(
    blocks: Blocks, a: Matrix, b: Matrix, random: np.random.RandomState
) -> tuple[float, int]:
    """`||K - a b^T||_F / ||K||_F` over random rows, and how many."""
    n, m = blocks.shape
    rows = np.sort(random.choice(n, min(n, ERROR_ROWS), replace=False))
    columns = np.arange(m)
    count, blocks.kernel.count = blocks.kernel.count, 1.0  # the true sums of "sne"
    wrong = total = 0.0
    for part in np.array_split(rows, max(1, len(rows) * m // _BLOCK)):
        true = blocks(part, columns, blocks.log_sums(part, columns))
        wrong += float(((true - a[part] @ b.T) ** 2).sum())
        total += float((true**2).sum())
    blocks.kernel.count = count
    return float(np.sqrt(wrong / total)) if total > 0 else 0.0, len(rows)
