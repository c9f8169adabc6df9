"""Leading singular triplets from products with K and K^T alone."""

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]

_OVERSAMPLE = 8  # extra directions: the wanted ones then converge by a wider gap
_SMALLEST_BASIS = 64


def leading_triplets(
    matvec: Product,
    rmatvec: Product,
    shape: tuple[int, int],
    s: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
    tol: float,
    max_iter: int,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`U (N, s)`, `sigma (s,)`, `V (M, s)` of `K (N, M)`; restarted block Lanczos.

    The right basis V grows by the residual block `K^T U - V Sigma`, fully reorthogonalised. In
    it, the SVD of `K V` gives the best triplets (Rayleigh-Ritz), for which `K V = U Sigma`
    holds exactly and `K^T U = V Sigma` is the test of convergence. A full basis restarts from
    its leading triplets, so the memory is `O((N + M) s)`. A block finds repeated singular values.
    """
    if shape[0] < shape[1]:  # the basis lives on the shorter side
        v, sigma, u = leading_triplets(
            rmatvec,
            matvec,
            (shape[1], shape[0]),
            s,
            dtype=dtype,
            device=device,
            tol=tol,
            max_iter=max_iter,
            seed=seed,
        )
        return u, sigma, v
    m = shape[1]
    block = min(s + _OVERSAMPLE, m)
    largest = min(m, max(4 * block, _SMALLEST_BASIS))
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def random(columns: int) -> Tensor:
        drawn = torch.randn(m, columns, generator=generator, dtype=torch.float64, device="cpu")
        return drawn.to(device=device, dtype=dtype)

    basis = torch.linalg.qr(random(block)).Q
    image = matvec(basis)  # K V, (N, j)
    error = float("inf")
    for _ in range(max_iter):
        q, small = torch.linalg.qr(image)
        x, sigma, yh = torch.linalg.svd(small, full_matrices=False)
        left, sigma, right = q @ x[:, :block], sigma[:block], basis @ yh.mT[:, :block]
        residual = rmatvec(left) - right * sigma
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
        image = torch.cat([image, matvec(new)], dim=1)
    raise RuntimeError(
        f"the residual of (7) is {error:.3g} after max_iter = {max_iter} blocks or the whole "
        f"space; expected at most tol * sigma_1 with tol = {tol:.3g}"
    )


def _orthonormal_to(basis: Tensor, columns: Tensor) -> Tensor:
    """An orthonormal basis of the columns' part outside `basis`."""
    for _ in range(3):  # twice is enough in theory; a nearly dependent column needs one more
        columns = torch.linalg.qr(columns - basis @ (basis.mT @ columns)).Q
    return columns
