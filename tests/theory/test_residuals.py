import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory import KSVDProblem, ksvd_residuals, residuals_of

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def by_means(exact) -> KSVDProblem:
    """The same solution where J takes means: Lambda_e = Lambda / N, Lambda_r = Lambda / M."""
    n, m = exact.kernel.shape
    lam = (n * m) ** 0.5 * exact.solution.lam
    h_e = exact.solution.left * (m / n) ** 0.25
    h_r = exact.solution.right * (n / m) ** 0.25
    w_e, w_r = exact.phi_k.mT @ h_r, exact.phi_q.mT @ h_e
    if exact.f is not None:
        w_e, w_r = exact.f @ w_e, exact.f @ w_r
    return KSVDProblem(exact.phi_q, exact.phi_k, w_e, w_r, lam.sqrt(), exact.f)


def test_solution_with_means(exact):
    found = residuals_of(by_means(exact))
    assert abs(found.objective.item()) < 1e-10
    assert found.solved(1e-10).item()
    assert not residuals_of(by_means(exact), positions="sum").solved(1e-3).item()
    assert not residuals_of(exact.problem()).solved(1e-3).item()


def test_definitions_with_the_kernel_formed(exact, randn):
    root = randn(3).abs() + 0.1
    w_e, w_r = randn(*exact.w_e.shape), randn(*exact.w_r.shape)
    problem = KSVDProblem(exact.phi_q, exact.phi_k, w_e, w_r, root, exact.f)
    found = residuals_of(problem, positions="sum")
    e, r = problem.scores()
    sigma = root**-2
    h_e, h_r = e / sigma, r / sigma

    def distance(x, y):
        return (x - y).norm() / (x.norm() + y.norm())

    eigen = max(
        distance(exact.kernel @ h_r, h_e * sigma), distance(exact.kernel.T @ h_e, h_r * sigma)
    )
    f = torch.eye(5).double() if exact.f is None else exact.f
    kkt = max(distance(w_e, f @ exact.phi_k.T @ h_r), distance(w_r, f @ exact.phi_q.T @ h_e))
    skew = max(
        (torch.nn.functional.normalize(h, dim=0).T @ torch.nn.functional.normalize(h, dim=0))
        .sub(torch.eye(3))
        .abs()
        .max()
        for h in (h_e, h_r)
    )
    assert_close(found.eigenproblem, eigen, **EXACT)
    assert_close(found.kkt_weights, kkt, **EXACT)
    assert_close(found.orthogonality, skew, **EXACT)
    assert_close(found.objective, problem.objective("sum"), **EXACT)


def test_one_direction_twice_is_not_a_solution(exact):
    """Both columns satisfy (7) and (14), and J = 0: only orthogonality can tell."""
    w_e, w_r = exact.w_e[:, [0, 0]], exact.w_r[:, [0, 0]]
    root = exact.solution.lam[[0, 0]].sqrt()
    problem = KSVDProblem(exact.phi_q, exact.phi_k, w_e, w_r, root, exact.f)
    found = residuals_of(problem, positions="sum")
    assert max(abs(found.objective), found.kkt_weights, found.eigenproblem) < 1e-10
    assert found.orthogonality.item() == pytest.approx(1)
    assert not found.solved(0.5).item()


def test_zero_weights_are_not_a_solution(exact):
    zero = torch.zeros_like(exact.w_e)
    problem = KSVDProblem(exact.phi_q, exact.phi_k, zero, zero, torch.ones(3).double(), exact.f)
    found = residuals_of(problem)
    assert found.objective.item() == 0
    assert found.orthogonality.item() == 1
    assert not found.solved(0.5).item()


def test_residuals_do_not_depend_on_the_scale_of_the_weights(exact, randn):
    w_e, w_r, root = randn(*exact.w_e.shape), randn(*exact.w_r.shape), randn(3)
    one, two = (
        residuals_of(KSVDProblem(exact.phi_q, exact.phi_k, c * w_e, c * w_r, root, exact.f))
        for c in (1.0, 7.0)
    )
    for name in ("kkt_weights", "eigenproblem", "orthogonality"):
        assert_close(getattr(one, name), getattr(two, name), **EXACT)


def test_many_positions_need_no_kernel(randn):
    """100,000 x 100,000 could not be formed."""
    n, p, s = 100_000, 4, 2
    problem = KSVDProblem(randn(n, p), randn(n, p), randn(p, s), randn(p, s), randn(s))
    assert torch.isfinite(residuals_of(problem).eigenproblem)


def test_batches_and_the_table(randn):
    problem = KSVDProblem(
        randn(2, 3, 7, 4), randn(2, 3, 5, 4), randn(3, 4, 2), randn(3, 4, 2), randn(3, 2)
    )
    found = residuals_of(problem)
    for name in ("objective", "kkt_weights", "eigenproblem", "orthogonality"):
        assert getattr(found, name).shape == (2, 3)
    assert found.solved(0.0).shape == (2, 3)
    lines = str(found).splitlines()
    assert len(lines) == 5
    assert lines[2].split()[0] == "kkt_weights"
    assert float(lines[2].split()[2]) == pytest.approx(found.kkt_weights.max().item(), rel=1e-3)


class Layer:
    """What ksvd_residuals needs of an attention."""

    def __init__(self, w):
        self.w = w

    def ksvd_problem(self, query, key=None, *, key_padding_mask=None):
        key = query if key is None else key
        valid = None if key_padding_mask is None else ~key_padding_mask
        return KSVDProblem(query, key, self.w, self.w, torch.ones(2).double(), valid_k=valid)


def test_residuals_of_a_layer(randn):
    layer = Layer(randn(4, 2).requires_grad_())
    x, y = randn(2, 6, 4), randn(2, 5, 4)
    ignore = torch.zeros(2, 5, dtype=torch.bool)
    ignore[1, 3:] = True
    found = ksvd_residuals(layer, x, y, key_padding_mask=ignore, positions="sum")
    expected = residuals_of(
        KSVDProblem(x, y, layer.w, layer.w, torch.ones(2).double(), valid_k=~ignore),
        positions="sum",
    )
    assert_close(found.kkt_weights, expected.kkt_weights.detach(), **EXACT)
    assert not found.objective.requires_grad
    assert ksvd_residuals(layer, x).objective.shape == (2,)


def test_bad_inputs(exact, randn):
    with pytest.raises(TypeError, match="Linear has no KSVD problem"):
        ksvd_residuals(torch.nn.Linear(2, 2), randn(1, 3, 2))
    with pytest.raises(ValueError, match="'median'"):
        residuals_of(exact.problem(), positions="median")
