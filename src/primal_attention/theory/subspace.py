"""Leading singular triplets from products with K and K^T alone."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]

_OVERSAMPLE = 8  # extra directions: the wanted ones then converge by a wider gap
_SMALLEST_BASIS = 64


class Products(NamedTuple):
    """A kernel `K (N, M)` by its products with blocks of columns."""

    matvec: Product  # K V
    rmatvec: Product  # K^T U
    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @property
    def transposed(self) -> "Products":
        return Products(self.rmatvec, self.matvec, self.shape[::-1], self.dtype, self.device)


def leading_triplets(
    kernel: Products, s: int, *, tol: float, max_iter: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`U (N, s)`, `sigma (s,)`, `V (M, s)` of `K (N, M)`; restarted block Lanczos.

    The right basis V grows by the residual block `K^T U - V Sigma`, fully reorthogonalised. In
    it, the SVD of `K V` gives the best triplets (Rayleigh-Ritz), for which `K V = U Sigma`
    holds exactly and `K^T U = V Sigma` is the test of convergence. A full basis restarts from
    its leading triplets, so the memory is `O((N + M) s)`. A block finds repeated singular values.
    """
    n, m = kernel.shape
    if n < m:  # the basis lives on the shorter side
        v, sigma, u = leading_triplets(kernel.transposed, s, tol=tol, max_iter=max_iter, seed=seed)
        return u, sigma, v
    block = min(s + _OVERSAMPLE, m)
    largest = min(m, max(4 * block, _SMALLEST_BASIS))
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def random(columns: int) -> Tensor:
        drawn = torch.randn(m, columns, generator=generator, dtype=torch.float64, device="cpu")
        return drawn.to(device=kernel.device, dtype=kernel.dtype)

    basis = torch.linalg.qr(random(block)).Q
    image = kernel.matvec(basis)  # K V, (N, j)
    error = float("inf")
    for _ in range(max_iter):
        q, small = torch.linalg.qr(image)
        x, sigma, yh = torch.linalg.svd(small, full_matrices=False)
        left, sigma, right = q @ x[:, :block], sigma[:block], basis @ yh.mT[:, :block]
        residual = kernel.rmatvec(left) - right * sigma
        size = residual.norm(dim=0)
        error = float(size[:s].max())
        if error <= tol * float(sigma[0]):
            return left[:, :s], sigma[:s], right[:, :s]
        if basis.shape[1] == m:
            break  # the whole space: more iterations cannot improve on rounding
        if basis.shape[1] == largest:
            basis, image = right, left * sigma
        room = min(block, largest - basis.shape[1])
        # a column converged to rounding enters as a random direction: harmless
        scaled = residual / torch.where(size > 0, size, 1.0)
        if not (size > 0).all():
            scaled = torch.where(size > 0, scaled, random(block))
        new = _orthonormal_to(basis, scaled[:, :room])
        basis = torch.cat([basis, new], dim=1)
        image = torch.cat([image, kernel.matvec(new)], dim=1)
    raise RuntimeError(
        f"the residual of (7) is {error:.3g} after max_iter = {max_iter} blocks or the whole "
        f"space; expected at most tol * sigma_1 with tol = {tol:.3g}"
    )


def _orthonormal_to(basis: Tensor, columns: Tensor) -> Tensor:
    """An orthonormal basis of the columns' part outside `basis`."""
    for _ in range(3):  # twice is enough in theory; a nearly dependent column needs one more
        columns = torch.linalg.qr(columns - basis @ (basis.mT @ columns)).Q
    return columns
