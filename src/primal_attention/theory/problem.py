"""One KSVD problem (6) with its current primal variables, as an attention layer hands it over."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .factors import KernelFactors
from .objective import Positions, check_positions, check_valid, energy, objective, trace_term
from .precision import widen


@dataclass(frozen=True, eq=False)
class KSVDProblem:
    """The data and the variables of eq. (6), per batch element and head.

    `phi_q (..., N, p)` and `phi_k (..., M, p)`: features. `w_e, w_r (..., n, s)`: primal
    weights. `sqrt_lambda (..., s)`: the root of Lambda's diagonal. `f (..., n, p)`: F_X, or
    None for the identity (then n = p). `valid_q (..., N)`, `valid_k (..., M)`: bool, True =
    valid; an invalid position counts as absent: its features are zero, whatever is there.
    """

    phi_q: Tensor
    phi_k: Tensor
    w_e: Tensor
    w_r: Tensor
    sqrt_lambda: Tensor
    f: Tensor | None = None
    valid_q: Tensor | None = None
    valid_k: Tensor | None = None

    def __post_init__(self) -> None:
        p, (n, s) = self.phi_q.shape[-1], self.w_e.shape[-2:]
        if self.phi_k.shape[-1] != p:
            raise ValueError(f"phi_k has {self.phi_k.shape[-1]} features; expected {p}, as phi_q")
        if self.w_r.shape[-2:] != (n, s):
            raise ValueError(
                f"w_r has shape {tuple(self.w_r.shape)}; expected (..., {n}, {s}), as w_e"
            )
        if self.sqrt_lambda.shape[-1] != s:
            raise ValueError(f"sqrt_lambda has {self.sqrt_lambda.shape[-1]} entries; expected {s}")
        if self.f is None and n != p:
            raise ValueError(f"w_e has {n} rows; expected p = {p}, since there is no f")
        if self.f is not None and self.f.shape[-2:] != (n, p):
            raise ValueError(f"f has shape {tuple(self.f.shape)}; expected (..., {n}, {p})")
        if self.valid_q is not None:
            check_valid(self.valid_q, self.phi_q)
        if self.valid_k is not None:
            check_valid(self.valid_k, self.phi_k)

    def features(self) -> tuple[Tensor, Tensor]:
        """`Phi_q (..., N, p)` and `Phi_k (..., M, p)` with absent positions zeroed."""
        return _present(self.phi_q, self.valid_q), _present(self.phi_k, self.valid_k)

    def counts(self) -> tuple[Tensor | int, Tensor | int]:
        """The numbers of valid queries and keys."""
        count_q = self.phi_q.shape[-2] if self.valid_q is None else self.valid_q.sum(dim=-1)
        count_k = self.phi_k.shape[-2] if self.valid_k is None else self.valid_k.sum(dim=-1)
        return count_q, count_k

    def factors(self) -> KernelFactors:
        """The induced kernel `K_ij = <F_X phi_q(x_i), F_X phi_k(x_j)>`."""
        return KernelFactors.from_features(*self.features(), self.f)

    def projections(self) -> tuple[Tensor, Tensor]:
        """`W_{e|X} = F_X^T W_e` and `W_{r|X} = F_X^T W_r`, each `(..., p, s)`."""
        w_e, w_r = widen(self.w_e), widen(self.w_r)
        if self.f is None:
            return w_e, w_r
        f = widen(self.f)
        return f.mT @ w_e, f.mT @ w_r

    def scores(self) -> tuple[Tensor, Tensor]:
        """`e (..., N, s)` and `r (..., M, s)` of (6); zero where absent."""
        phi_q, phi_k = self.features()
        w_e, w_r = self.projections()
        return phi_q @ w_e, phi_k @ w_r

    def objective(self, positions: Positions = "mean") -> Tensor:
        """J of eq. (11), shaped `(...)`."""
        check_positions(positions)
        e, r = self.scores()
        count_e, count_r = self.counts() if positions == "mean" else (None, None)
        return objective(
            energy(e, self.sqrt_lambda),
            energy(r, self.sqrt_lambda),
            trace_term(self.w_e, self.w_r),
            count_e=count_e,
            count_r=count_r,
            positions=positions,
        )


def _present(phi: Tensor, valid: Tensor | None) -> Tensor:
    # where, not a product: an absent position may hold NaN
    return widen(phi) if valid is None else torch.where(valid.unsqueeze(-1), widen(phi), 0.0)
