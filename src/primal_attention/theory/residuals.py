"""How far given primal weights are from a KSVD solution.

J = 0 is necessary for a solution (Lemma 4.2), not sufficient: random weights reach it once Lambda
is rescaled by one number. The residuals of (14) and (7) tell the two apart.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .objective import Positions, check_positions
from .precision import widen
from .problem import KSVDProblem


@dataclass(frozen=True, eq=False)
class KSVDResiduals:
    """Everything that vanishes at a KSVD solution. All tensors are shaped `(...)`.

    `objective`: J with sums over the positions, eq. (11).
    `kkt_weights`: distance of `W_e, W_r` from the sums of (14), in [0, 1].
    `eigenproblem`: distance between the two sides of (7), in [0, 1].
    `orthogonality`: largest entry of `|H^T H - I|`, the columns of H_e and H_r normalised; a
    zero column counts 1.

    A distance of x and y is `||x - y|| / (||x|| + ||y||)` (Frobenius), and the larger of the
    e side and the r side is reported.
    """

    objective: Tensor
    kkt_weights: Tensor
    eigenproblem: Tensor
    orthogonality: Tensor

    def solved(self, tol: float = 1e-6) -> Tensor:
        """Where (7), (14) and orthogonality hold to `tol`: bool, `(...)`. J = 0 follows."""
        worst = torch.maximum(self.kkt_weights, self.eigenproblem)
        return torch.maximum(worst, self.orthogonality) <= tol

    def __str__(self) -> str:
        lines = [f"{'residual':<15}{'mean |.|':>11}{'max |.|':>11}"]
        for name in ("objective", "kkt_weights", "eigenproblem", "orthogonality"):
            size = getattr(self, name).detach().abs()
            lines.append(f"{name:<15}{size.mean().item():>11.3e}{size.max().item():>11.3e}")
        return "\n".join(lines)


def residuals_of(problem: KSVDProblem, *, positions: Positions = "mean") -> KSVDResiduals:
    """The residuals of a problem, in time and memory linear in the positions: K is not formed.

    `positions` says how Lambda was trained. `"sum"`: as (11) is written. `"mean"`: J took
    means over N queries and M keys, so the Lambda of (11) is `Lambda / N` for e and
    `Lambda / M` for r; where N != M, (7) then reads `K H_r = H_e Sigma_e`,
    `K^T H_e = H_r Sigma_r`, an SVD of K up to the scale of the columns.
    """
    check_positions(positions)
    lambda_e = lambda_r = widen(problem.sqrt_lambda).square()  # (..., s)
    if positions == "mean":
        count_e, count_r = problem.counts()
        lambda_e, lambda_r = _per_position(lambda_e, count_e), _per_position(lambda_r, count_r)
    e, r = problem.scores()
    h_e = e * lambda_e.unsqueeze(-2)  # Lambda e_i = h_ei, so H_e Sigma = e without a division
    h_r = r * lambda_r.unsqueeze(-2)
    phi_q, phi_k = problem.features()
    w_e, w_r = phi_k.mT @ h_r, phi_q.mT @ h_e  # (..., p, s): the weights that (14) asks for
    if problem.f is not None:
        w_e, w_r = widen(problem.f) @ w_e, widen(problem.f) @ w_r
    kernel = problem.factors()
    return KSVDResiduals(
        objective=problem.objective(positions),  # sums with Lambda / N are means with Lambda
        kkt_weights=torch.maximum(
            _distance(widen(problem.w_e), w_e), _distance(widen(problem.w_r), w_r)
        ),
        eigenproblem=torch.maximum(
            _distance(kernel.matvec(h_r), e), _distance(kernel.rmatvec(h_e), r)
        ),
        orthogonality=torch.maximum(_skewness(h_e), _skewness(h_r)),
    )


class HasKSVDProblem(Protocol):
    """An attention that can state its KSVD problem for an input."""

    def ksvd_problem(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KSVDProblem: ...


@torch.no_grad()
def ksvd_residuals(
    attention: HasKSVDProblem,
    query: Tensor,
    key: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    positions: Positions = "mean",
) -> KSVDResiduals:
    """How far an attention layer is from a KSVD solution on this input, see `residuals_of`.

    `query (B, N, d)`, `key (B, M, d)` or None for self-attention, `key_padding_mask (B, M)`
    with True = ignore. The residuals are shaped `(B, heads)`.
    """
    if not hasattr(attention, "ksvd_problem"):
        raise TypeError(
            f"{type(attention).__name__} has no KSVD problem; expected an attention with the "
            "method ksvd_problem(query, key, key_padding_mask=...), such as Primal-Attention"
        )
    problem = attention.ksvd_problem(query, key, key_padding_mask=key_padding_mask)
    return residuals_of(problem, positions=positions)


def _per_position(lam: Tensor, count: Tensor | int) -> Tensor:
    if isinstance(count, int):
        return lam / max(count, 1)
    return lam / count.clamp(min=1).unsqueeze(-1)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    size = torch.linalg.matrix_norm(x) + torch.linalg.matrix_norm(y)
    distance: Tensor = torch.linalg.matrix_norm(x - y) / torch.where(size > 0, size, 1.0)
    return distance


def _skewness(h: Tensor) -> Tensor:
    """Largest entry of `|H^T H - I|` with the columns of `h (..., N, s)` normalised."""
    norm = torch.linalg.vector_norm(h, dim=-2, keepdim=True)
    unit = h / torch.where(norm > 0, norm, 1.0)
    identity = torch.eye(h.shape[-1], dtype=h.dtype, device=h.device)
    return (unit.mT @ unit - identity).abs().amax(dim=(-2, -1))
