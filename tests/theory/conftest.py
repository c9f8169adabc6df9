"""Small float64 KSVD problems, each with its exact solution."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from primal_attention.theory import KSVD, KernelFactors, KSVDProblem, ksvd

CASES = {
    "N=M, F=I": (12, 12, None),
    "N>M, F=I": (13, 9, None),
    "N<M, F=I": (7, 11, None),
    "N=M, F tall": (12, 12, 15),
    "N>M, F tall": (13, 9, 8),
    "N<M, F wide": (8, 11, 4),
}


@dataclass
class Exact:
    """Features, F_X, K formed by hand, and the KSVD of K with its primal weights."""

    phi_q: Tensor
    phi_k: Tensor
    f: Tensor | None
    kernel: Tensor
    solution: KSVD
    w_e: Tensor
    w_r: Tensor

    @property
    def metric(self) -> Tensor:
        """F_X^T F_X."""
        if self.f is None:
            return torch.eye(self.phi_q.shape[1], dtype=self.phi_q.dtype)
        return self.f.T @ self.f

    def problem(self) -> KSVDProblem:
        return KSVDProblem(
            self.phi_q, self.phi_k, self.w_e, self.w_r, self.solution.lam.sqrt(), self.f
        )


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture
def randn(generator):
    def draw(*shape, dtype=torch.float64):
        return torch.randn(shape, generator=generator, dtype=dtype)

    return draw


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def exact(request, randn) -> Exact:
    n, m, anchors = request.param
    p, s = 5, 3
    phi_q, phi_k = randn(n, p), randn(m, p)
    f = None if anchors is None else randn(anchors, p)
    metric = torch.eye(p, dtype=torch.float64) if f is None else f.T @ f
    kernel = phi_q @ metric @ phi_k.T
    solution = ksvd(kernel, s, method="dense")
    w_e, w_r = solution.primal_weights(phi_q, phi_k, f)
    return Exact(phi_q, phi_k, f, kernel, solution, w_e, w_r)


@pytest.fixture
def factors(randn):
    def make(n=9, m=7, r=4, batch=()):
        return KernelFactors(randn(*batch, n, r), randn(*batch, m, r))

    return make
