"""The exact KSVD: the dual problem (7), its solution, and the way to the primal variables (14)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from .factors import DenseKernel, Kernel, KernelFactors
from .subspace import Products, leading_triplets

Method = Literal["auto", "dense", "iterative"]

_DENSE_SIZE = 2000  # up to here a full SVD is a matter of seconds


class LinearOperator(Protocol):
    """A kernel known by its products only: `K v` and `K^T v` for one vector at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def matvec(self, v: Any) -> Any: ...

    def rmatvec(self, v: Any) -> Any: ...


KernelLike = Tensor | np.ndarray | Kernel | LinearOperator


@dataclass(frozen=True, eq=False)
class KSVD:
    """A solution of (7): `K H_r = H_e Sigma`, `K^T H_e = H_r Sigma`.

    `left` = H_e `(N, s)` and `right` = H_r `(M, s)` with orthonormal columns, `sigma
    (s,)` descending.
    """

    left: Tensor
    right: Tensor
    sigma: Tensor

    @property
    def rank(self) -> int:
        """How many singular values exceed `max(N, M) eps sigma_1`: the rest are rounding."""
        size = max(self.left.shape[0], self.right.shape[0])
        floor = size * torch.finfo(self.sigma.dtype).eps * self.sigma[0]
        return int((self.sigma > floor).sum())

    @property
    def lam(self) -> Tensor:
        """The diagonal of `Lambda = Sigma^{-1} (s,)`; ValueError where it would be infinite."""
        self._check_rank()
        return self.sigma.reciprocal()

    def residual(self, kernel: KernelLike) -> float:
        """The larger of `||K H_r - H_e Sigma||` and `||K^T H_e - H_r Sigma||`, eq. (7).

        Frobenius norms, relative to `||Sigma||`; absolute if Sigma = 0.
        """
        products = _products(kernel)
        e_side = products.matvec(self.right) - self.left * self.sigma
        r_side = products.rmatvec(self.left) - self.right * self.sigma
        size = float(self.sigma.norm())
        return max(float(e_side.norm()), float(r_side.norm())) / (size if size > 0 else 1.0)

    def primal_weights(
        self, phi_q: Tensor, phi_k: Tensor, f: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`W_e = F_X Phi_k^T H_r` and `W_r = F_X Phi_q^T H_e`, each `(n, s)`: KKT (14).

        `phi_q (N, p)`, `phi_k (M, p)`, `f = F_X (n, p)` or None for the identity: those that
        made the kernel. ValueError where a sigma is zero, since no Lambda then fulfils (14).
        """
        self._check_rank()
        for name, phi, h in (("phi_q", phi_q, self.left), ("phi_k", phi_k, self.right)):
            if phi.shape[0] != h.shape[0]:
                raise ValueError(f"{name} has {phi.shape[0]} rows; expected {h.shape[0]}")
        w_e, w_r = phi_k.mT @ self.right, phi_q.mT @ self.left
        return (w_e, w_r) if f is None else (f @ w_e, f @ w_r)

    def _check_rank(self) -> None:
        if self.rank < self.sigma.shape[0]:
            raise ValueError(
                f"sigma[{self.rank}] = {float(self.sigma[self.rank]):.3g} is zero to working "
                f"precision (sigma[0] = {float(self.sigma[0]):.3g}), so Lambda = Sigma^-1 does not "
                f"exist; expected s <= {self.rank}, the rank of the kernel"
            )


def dual_variables(e: Tensor, r: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """From scores to dual variables by (14): `h_ei = Lambda e_i`, `h_rj = Lambda r_j`.

    `e (..., N, s)`, `r (..., M, s)`, `lam (..., s)`; result `H_e`, `H_r` of those shapes.
    """
    if not e.shape[-1] == r.shape[-1] == lam.shape[-1]:
        raise ValueError(
            f"e, r and lam have {e.shape[-1]}, {r.shape[-1]} and {lam.shape[-1]} directions; "
            "expected one number s"
        )
    return e * lam.unsqueeze(-2), r * lam.unsqueeze(-2)


@torch.no_grad()
def ksvd(
    kernel: KernelLike,
    s: int,
    *,
    method: Method = "auto",
    tol: float | None = None,
    max_iter: int = 1000,
    seed: int = 0,
) -> KSVD:
    """The `s` leading singular triplets of an asymmetric kernel `(N, M)`, eq. (7).

    `kernel`: a matrix, a `KernelFactors` or `DenseKernel`, or any object with `shape`,
    `matvec` and `rmatvec` (handed numpy vectors if its `dtype` is numpy's, else tensors).

    `method`: `"dense"` forms K and takes its full SVD. `"iterative"` uses products with K
    and K^T only, `O((N + M) s)` memory, until each column's residual of (7) is at most
    `tol * sigma_1` (default `eps^{3/4}`); RuntimeError if `max_iter` blocks do not suffice.
    `"auto"`: the exact factored SVD of a `KernelFactors`; dense for a matrix whose shorter
    side is at most 2000 or at most 8 s; else iterative.

    The signs are fixed: in each column of H_e the entry largest in magnitude is positive. No
    gradient flows through the solution.
    """
    if method not in ("auto", "dense", "iterative"):
        raise ValueError(f'method is {method!r}; expected "auto", "dense" or "iterative"')
    kernel = _held(kernel)
    if len(kernel.shape) != 2:
        raise ValueError(f"the kernel has shape {tuple(kernel.shape)}; expected (N, M)")
    most = kernel.max_rank if isinstance(kernel, Kernel) else min(kernel.shape)
    if not 1 <= s <= most:
        raise ValueError(
            f"s is {s}; expected 1 <= s <= {most}, the most singular values that this kernel of "
            f"shape {tuple(kernel.shape)} can have"
        )
    direct = isinstance(kernel, KernelFactors) or min(kernel.shape) <= max(_DENSE_SIZE, 8 * s)
    if isinstance(kernel, Kernel):
        _check_finite(kernel)
    elif method == "dense":
        raise ValueError(
            f'method="dense" was asked of a {type(kernel).__name__}; expected a matrix, '
            "KernelFactors or DenseKernel"
        )
    if isinstance(kernel, Kernel) and method == "dense":
        left, sigma, right = Kernel.svd(kernel, s)
    elif isinstance(kernel, Kernel) and method == "auto" and direct:
        left, sigma, right = kernel.svd(s)
    else:
        products = _products(kernel)
        tol = torch.finfo(products.dtype).eps ** 0.75 if tol is None else tol
        left, sigma, right = leading_triplets(products, s, tol=tol, max_iter=max_iter, seed=seed)
    largest = left.abs().argmax(dim=0, keepdim=True)
    sign = torch.where(left.gather(0, largest) < 0, -1.0, 1.0).to(left.dtype)
    return KSVD(left=left * sign, right=right * sign, sigma=sigma)


def _held(kernel: KernelLike) -> Kernel | LinearOperator:
    """A matrix as a kernel, everything else as it is."""
    if not isinstance(kernel, Tensor | np.ndarray):
        return kernel
    matrix = torch.as_tensor(kernel)
    if matrix.is_complex():
        raise ValueError(f"the kernel has dtype {matrix.dtype}; expected a real one")
    return DenseKernel(matrix if matrix.is_floating_point() else matrix.double())


def _check_finite(kernel: Kernel) -> None:
    bad = sum(int((~torch.isfinite(x)).sum()) for x in kernel.held())
    if bad:
        raise ValueError(f"the kernel holds {bad} values that are NaN or infinite; expected none")


def _products(kernel: KernelLike) -> Products:
    kernel = _held(kernel)
    n, m = kernel.shape
    if isinstance(kernel, Kernel):
        return Products(kernel.matvec, kernel.rmatvec, (n, m), kernel.dtype, kernel.device)
    given = getattr(kernel, "dtype", None)
    dtype = given if isinstance(given, torch.dtype) else torch.float64
    device = torch.device(getattr(kernel, "device", "cpu"))
    in_numpy = isinstance(given, np.dtype)

    def by_column(product: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
        def apply(block: Tensor) -> Tensor:
            columns = [
                torch.as_tensor(product(v.cpu().numpy() if in_numpy else v)).reshape(-1)
                for v in block.unbind(dim=1)
            ]
            result = torch.stack(columns, dim=1).to(device=device, dtype=dtype)
            if not torch.isfinite(result).all():
                raise ValueError("a product with the kernel is NaN or infinite; expected finite")
            return result

        return apply

    return Products(by_column(kernel.matvec), by_column(kernel.rmatvec), (n, m), dtype, device)
