"""Iterative pseudo-inverses against the one by singular values."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.attention.pseudo_inverse import newton, third_order

from .draws import draw


@pytest.mark.parametrize(("iterate", "iterations"), [(third_order, 12), (newton, 25)])
def test_converges(iterate, iterations):
    a = draw(3, 2, 5, 5).softmax(-1) + torch.eye(5, dtype=torch.float64)
    assert_close(iterate(a, iterations), torch.linalg.inv(a), rtol=1e-9, atol=1e-9)
    low_rank = draw(2, 5, 2) @ draw(2, 2, 5, seed=1)
    assert_close(iterate(low_rank, iterations), torch.linalg.pinv(low_rank), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("iterate", "order"), [(third_order, 3), (newton, 2)])
def test_order_of_convergence(iterate, order):
    """The residual I - A Z of a matrix of one entry goes to its power, near the solution."""
    a = torch.tensor([[1.0]], dtype=torch.float64) * 0.9
    near = torch.diag(torch.tensor([1.0, 0.9], dtype=torch.float64))  # the norms are of entry 1

    def residual(iterations: int) -> float:
        return abs(1 - (a[0, 0] * iterate(near, iterations)[1, 1]).item())

    first, second = residual(1), residual(2)
    assert second < 2 * first**order
    assert second > 0.1 * first**order


@pytest.mark.parametrize("iterate", [third_order, newton])
def test_matrices_do_not_see_each_other(iterate):
    a = draw(3, 4, 4).softmax(-1)
    together = iterate(a * torch.tensor([1.0, 1.0, 100.0], dtype=a.dtype)[:, None, None], 4)
    assert_close(together[:2], iterate(a[:2], 4), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("iterate", [third_order, newton])
def test_gradient_near_convergence_is_that_of_the_inverse(iterate):
    a = (draw(4, 4).softmax(-1) + torch.eye(4, dtype=torch.float64)).requires_grad_()
    g = draw(4, 4, seed=2)
    ours = torch.autograd.grad(iterate(a, 25), a, g)
    assert_close(ours, torch.autograd.grad(torch.linalg.inv(a), a, g), rtol=1e-8, atol=1e-8)
