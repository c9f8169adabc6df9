"""The induced kernel K: as factors, never formed, or as a dense matrix, with the same methods."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .precision import widen

Index = slice | Sequence[int] | np.ndarray | Tensor  # positions, shared by all batch elements

_CHUNK = 1 << 16  # rows of a tall matrix reduced at a time


class Kernel(ABC):
    """What can be asked of a kernel `K (..., N, M)`, here answered from the matrix itself."""

    shape: tuple[int, ...]  # (..., N, M)
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def dense(self) -> Tensor:
        """K itself, `(..., N, M)`."""

    def held(self) -> tuple[Tensor, ...]:
        """The numbers that it is made of."""
        return (self.dense(),)

    @property
    def max_rank(self) -> int:
        """The number of singular values, an upper bound of the rank."""
        return min(self.shape[-2:])

    def svd(self, k: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """`U (..., N, k)`, `sigma (..., k)` descending, `V (..., M, k)`; K = U Sigma V^T.

        All `max_rank` of them when `k` is None.
        """
        k = self._count(k)
        u, sigma, vh = torch.linalg.svd(self.dense(), full_matrices=False)
        return u[..., :k], sigma[..., :k], vh.mT[..., :k]

    def singular_values(self, k: int | None = None) -> Tensor:
        """The `k` largest singular values `(..., k)`, descending."""
        k = self._count(k)
        sigma: Tensor = torch.linalg.svdvals(self.dense())
        return sigma[..., :k]

    def gram(self, rows: Index) -> Tensor:
        """`(K K^T)_{II}` on the rows I: `(..., |I|, |I|)`."""
        chosen = _rows(self.dense(), rows)
        return chosen @ chosen.mT

    def block_energy(self, rows: Index, columns: Index) -> Tensor:
        """`sum_{i in I, j in J} K_ij^2`, shaped `(...)`."""
        block = _rows(_rows(self.dense(), rows).mT, columns)
        return block.square().sum(dim=(-2, -1))

    def matvec(self, v: Tensor) -> Tensor:
        """`K v` for one vector `(M,)` or for columns `(..., M, k)`."""
        product = self._times(self._columns(v, self.shape[-1]))
        return product.squeeze(-1) if v.ndim == 1 else product

    def rmatvec(self, v: Tensor) -> Tensor:
        """`K^T v` for one vector `(N,)` or for columns `(..., N, k)`."""
        product = self._transposed_times(self._columns(v, self.shape[-2]))
        return product.squeeze(-1) if v.ndim == 1 else product

    def row_sums(self) -> Tensor:
        """`K 1`, `(..., N)`."""
        return self.matvec(torch.ones(self.shape[-1], dtype=self.dtype, device=self.device))

    def column_sums(self) -> Tensor:
        """`K^T 1`, `(..., M)`."""
        return self.rmatvec(torch.ones(self.shape[-2], dtype=self.dtype, device=self.device))

    def frobenius_norm(self) -> Tensor:
        """`||K||_F`, shaped `(...)`."""
        everything = slice(None)
        return self.block_energy(everything, everything).clamp(min=0).sqrt()

    def effective_rank(self) -> Tensor:
        """`exp(-sum_i p_i log p_i)` with `p_i = sigma_i / sum_j sigma_j`, shaped `(...)`.

        Roy & Vetterli (2007), "The effective rank". From 1 (rank one) to the rank (all singular
        values equal); 0 for K = 0, where the definition is silent.
        """
        sigma = self.singular_values()
        total = sigma.sum(dim=-1, keepdim=True)
        share = sigma / torch.where(total > 0, total, 1.0)
        rank = torch.special.entr(share).sum(dim=-1).exp()
        return torch.where(total.squeeze(-1) > 0, rank, 0.0)

    def explained_variance(self) -> Tensor:
        """`sum_{i<=k} sigma_i^2 / sum_i sigma_i^2` for k = 1, 2, ...: `(..., max_rank)`.

        1 throughout for K = 0: nothing is left to explain.
        """
        energy = self.singular_values().square().cumsum(dim=-1)
        total = energy[..., -1:]
        return torch.where(total > 0, energy / torch.where(total > 0, total, 1.0), 1.0)

    def _times(self, columns: Tensor) -> Tensor:
        return self.dense() @ columns

    def _transposed_times(self, columns: Tensor) -> Tensor:
        return self.dense().mT @ columns

    def _columns(self, v: Tensor, expected: int) -> Tensor:
        columns = v.unsqueeze(-1) if v.ndim == 1 else v
        if columns.ndim < 2 or columns.shape[-2] != expected:
            raise ValueError(
                f"v has shape {tuple(v.shape)}; expected ({expected},) or (..., {expected}, k)"
            )
        return columns.to(self.dtype)

    def _count(self, k: int | None) -> int:
        if k is None:
            return self.max_rank
        if not 1 <= k <= self.max_rank:
            raise ValueError(
                f"k is {k}; expected 1 <= k <= {self.max_rank}, the most singular values that "
                f"this kernel of shape {self.shape} can have"
            )
        return k


class KernelFactors(Kernel):
    """`K = A B^T` without forming it: `a (..., N, r)`, `b (..., M, r)`.

    Every method but `dense` is linear in N and M. Half precision is widened to float32.
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
            raise ValueError(
                f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; "
                "expected (..., N, r) and (..., M, r) with one r"
            )
        try:
            batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"the batch dimensions {tuple(a.shape[:-2])} of a and {tuple(b.shape[:-2])} of b "
                "do not fit; expected the same, or 1"
            ) from None
        dtype = torch.promote_types(a.dtype, b.dtype)
        self.a, self.b = widen(a.to(dtype)), widen(b.to(dtype))
        self.shape = (*batch, a.shape[-2], b.shape[-2])
        self.dtype, self.device = self.a.dtype, a.device

    @classmethod
    def from_features(
        cls, phi_q: Tensor, phi_k: Tensor, f: Tensor | None = None
    ) -> "KernelFactors":
        """The kernel of section 3: `K_ij = <F_X phi_q(x_i), F_X phi_k(x_j)>`.

        `phi_q (..., N, p)`, `phi_k (..., M, p)`, `f = F_X (..., n, p)` or None for the
        identity. `A = Phi_q R^T` and `B = Phi_k R^T` with R from the thin QR of F_X; where
        n <= p, F_X is as small as R already and takes its place.
        """
        if f is None:
            return cls(phi_q, phi_k)
        if f.shape[-1] != phi_q.shape[-1] or f.shape[-1] != phi_k.shape[-1]:
            raise ValueError(
                f"f has shape {tuple(f.shape)}, phi_q {tuple(phi_q.shape)} and phi_k "
                f"{tuple(phi_k.shape)}; expected one p in the last dimension"
            )
        r = _triangle(widen(f))
        return cls(widen(phi_q) @ r.mT, widen(phi_k) @ r.mT)

    def held(self) -> tuple[Tensor, ...]:
        return self.a, self.b

    @property
    def max_rank(self) -> int:
        return min(int(size) for size in (*self.a.shape[-2:], self.b.shape[-2]))

    def svd(self, k: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Exact: `A = Q_a R_a`, `B = Q_b R_b`, then the small SVD of `R_a R_b^T`."""
        k = self._count(k)
        q_a, r_a = torch.linalg.qr(self.a)
        q_b, r_b = torch.linalg.qr(self.b)
        u, sigma, vh = torch.linalg.svd(r_a @ r_b.mT, full_matrices=False)
        return q_a @ u[..., :k], sigma[..., :k], q_b @ vh.mT[..., :k]

    def singular_values(self, k: int | None = None) -> Tensor:
        """`O((N + M) r^2)` time and `O(r^2)` memory on top of the factors."""
        k = self._count(k)
        core = _triangle(self.a) @ _triangle(self.b).mT
        sigma: Tensor = torch.linalg.svdvals(core)
        return sigma[..., :k]

    def gram(self, rows: Index) -> Tensor:
        a = _rows(self.a, rows)
        return a @ (self.b.mT @ self.b) @ a.mT

    def block_energy(self, rows: Index, columns: Index) -> Tensor:
        """`tr((A_I^T A_I)(B_J^T B_J))`."""
        a, b = _rows(self.a, rows), _rows(self.b, columns)
        return ((a.mT @ a) * (b.mT @ b)).sum(dim=(-2, -1))

    def dense(self) -> Tensor:
        return self.a @ self.b.mT

    def _times(self, columns: Tensor) -> Tensor:
        return self.a @ (self.b.mT @ columns)

    def _transposed_times(self, columns: Tensor) -> Tensor:
        return self.b @ (self.a.mT @ columns)


class DenseKernel(Kernel):
    """A kernel held as its matrix `(..., N, M)`: softmax attention, or any other."""

    def __init__(self, matrix: Tensor) -> None:
        if matrix.ndim < 2:
            raise ValueError(f"matrix has shape {tuple(matrix.shape)}; expected (..., N, M)")
        self.matrix = widen(matrix)
        self.shape, self.dtype = tuple(matrix.shape), self.matrix.dtype
        self.device = matrix.device

    def dense(self) -> Tensor:
        return self.matrix


def _rows(x: Tensor, index: Index) -> Tensor:
    """The rows `index` of `x (..., N, c)`."""
    if isinstance(index, slice):
        return x[..., index, :]
    chosen = torch.as_tensor(index, device=x.device)
    if chosen.ndim != 1:
        raise ValueError(f"an index of shape {tuple(chosen.shape)} was given; expected one list")
    if chosen.numel() == 0:
        chosen = chosen.long()  # an empty list arrives as float
    return x[..., chosen, :]


def _triangle(x: Tensor) -> Tensor:
    """A matrix `(..., min(N, r), r)` with the Gram matrix `R^T R = X^T X` of `x (..., N, r)`.

    The R of a QR, folded over chunks of rows so that no second tall matrix is made; `x`
    itself where it is not tall.
    """
    n, r = x.shape[-2:]
    if n <= r:
        return x
    # the cheaper mode has no derivative
    mode = "reduced" if torch.is_grad_enabled() and x.requires_grad else "r"
    triangle = x[..., :0, :]
    for chunk in x.split(max(_CHUNK, r), dim=-2):
        triangle = torch.linalg.qr(torch.cat([triangle, chunk], dim=-2), mode=mode).R
    return triangle
