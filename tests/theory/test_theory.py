"""Theorem 3.2, Remark 3.3 and Lemma 4.2, in numbers."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from primal_attention.theory import KSVDProblem, dual_variables, ksvd, residuals_of

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def test_theorem_32_shifted_eigenproblem(exact):
    k, sol = exact.kernel, exact.solution
    assert_close(k @ sol.right, sol.left @ torch.diag(sol.sigma), **EXACT)
    assert_close(k.T @ sol.left, sol.right @ torch.diag(sol.sigma), **EXACT)
    n, m = k.shape
    block = torch.zeros(n + m, n + m, dtype=torch.float64)
    block[:n, n:], block[n:, :n] = k, k.T
    stacked = torch.cat([sol.left, sol.right])
    assert_close(block @ stacked, stacked / sol.lam, **EXACT)  # the matrix form before (15)
    assert (sol.sigma > 0).all()


def test_theorem_32_all_six_kkt_conditions(exact):
    e, r = exact.problem().scores()
    lam = torch.diag(exact.solution.lam)
    h_e, h_r = exact.solution.left, exact.solution.right
    f = torch.eye(exact.phi_q.shape[1], dtype=torch.float64) if exact.f is None else exact.f
    w_r = sum(torch.outer(f @ exact.phi_q[i], h_e[i]) for i in range(len(h_e)))
    w_e = sum(torch.outer(f @ exact.phi_k[j], h_r[j]) for j in range(len(h_r)))
    assert_close(exact.w_r, w_r, **EXACT)
    assert_close(exact.w_e, w_e, **EXACT)
    for i in range(len(h_e)):
        assert_close(lam @ e[i], h_e[i], **EXACT)
        assert_close(exact.w_e.T @ f @ exact.phi_q[i], e[i], **EXACT)
    for j in range(len(h_r)):
        assert_close(lam @ r[j], h_r[j], **EXACT)
        assert_close(exact.w_r.T @ f @ exact.phi_k[j], r[j], **EXACT)


def test_dual_variables_lead_back(exact):
    h_e, h_r = dual_variables(*exact.problem().scores(), exact.solution.lam)
    assert_close(h_e, exact.solution.left, **EXACT)
    assert_close(h_r, exact.solution.right, **EXACT)


def test_remark_33_primal_is_dual_on_the_sequence(exact):
    e, r = exact.problem().scores()
    assert_close(e, exact.kernel @ exact.solution.right, **EXACT)
    assert_close(r, exact.kernel.T @ exact.solution.left, **EXACT)


def test_remark_33_primal_is_dual_at_new_points(exact, randn):
    new_q, new_k = randn(6, 5), randn(6, 5)
    w_e, w_r = exact.problem().projections()
    to_keys = new_q @ exact.metric @ exact.phi_k.T  # kappa(x, x_j)
    from_queries = exact.phi_q @ exact.metric @ new_k.T  # kappa(x_i, x)
    assert_close(new_q @ w_e, to_keys @ exact.solution.right, **EXACT)
    assert_close(new_k @ w_r, from_queries.T @ exact.solution.left, **EXACT)


def test_lemma_42_objective_is_zero(exact):
    assert abs(exact.problem().objective("sum").item()) < 1e-10
    doubled = exact.problem().sqrt_lambda * 2**0.5
    other = KSVDProblem(exact.phi_q, exact.phi_k, exact.w_e, exact.w_r, doubled, exact.f)
    assert abs(other.objective("sum").item()) > 0.1  # and is not zero by accident


def test_residuals_vanish_at_the_solution(exact):
    found = residuals_of(exact.problem(), positions="sum")
    for value in (found.objective, found.kkt_weights, found.eigenproblem, found.orthogonality):
        assert abs(value.item()) < 1e-10
    assert found.solved(1e-9).item()


def test_zero_objective_is_not_a_solution(exact, randn):
    """Random weights with Lambda rescaled by one number: J = 0, and nothing is solved."""
    w_e = randn(*exact.w_e.shape)
    w_r = w_e + 0.5 * randn(*exact.w_r.shape)  # a positive trace, so that a scale exists
    e, r = KSVDProblem(exact.phi_q, exact.phi_k, w_e, w_r, torch.ones(3), exact.f).scores()
    trace = torch.trace(w_e.T @ w_r)
    scale = trace / (0.5 * e.square().sum() + 0.5 * r.square().sum())
    assert scale > 0
    sqrt_lambda = scale.sqrt().expand(3)
    problem = KSVDProblem(exact.phi_q, exact.phi_k, w_e, w_r, sqrt_lambda, exact.f)
    found = residuals_of(problem, positions="sum")
    assert abs(found.objective.item()) < 1e-10
    assert found.kkt_weights > 0.05
    assert found.eigenproblem > 0.05
    assert found.orthogonality > 0.05
    assert not found.solved(0.01).item()


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(3, 9),
    m=st.integers(3, 9),
    p=st.integers(3, 6),
    anchors=st.none() | st.integers(3, 8),
    s=st.integers(1, 3),
    seed=st.integers(0, 10_000),
)
def test_theory_at_any_size(n, m, p, anchors, s, seed):
    generator = torch.Generator().manual_seed(seed)

    def orthonormal(*shape):  # well conditioned, so that 1e-9 is a fair demand
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        u, _, vh = torch.linalg.svd(drawn, full_matrices=False)
        return u @ torch.diag(torch.linspace(1, 2, min(shape), dtype=torch.float64)) @ vh

    phi_q, phi_k = orthonormal(n, p), orthonormal(m, p)
    f = None if anchors is None else orthonormal(anchors, p)
    w_to_kernel = torch.eye(p, dtype=torch.float64) if f is None else f.T @ f
    kernel = phi_q @ w_to_kernel @ phi_k.T
    solution = ksvd(kernel, s)
    assume(solution.sigma[-1] > 1e-3 * solution.sigma[0])
    w_e, w_r = solution.primal_weights(phi_q, phi_k, f)
    problem = KSVDProblem(phi_q, phi_k, w_e, w_r, solution.lam.sqrt(), f)
    assert solution.residual(kernel) < 1e-12
    assert abs(problem.objective("sum").item()) < 1e-9
    assert residuals_of(problem, positions="sum").solved(1e-9).item()
