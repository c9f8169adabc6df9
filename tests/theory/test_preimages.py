"""Learned points: kernels, the exact solution, and landmarks."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory.preimages import Learner, PointKernel, learned_landmarks, solved


@pytest.mark.parametrize("name", ["poly", "sigmoid", "linear", "rbf"])
def test_kernels_by_hand(name):
    u, x = torch.randn(3, 4).double(), torch.randn(5, 4).double()
    found = PointKernel(name, gamma=0.3, degree=3, coef0=0.5)(u, x)
    for i in range(5):
        for t in range(3):
            product = u[t] @ x[i]
            expected = {
                "linear": product,
                "poly": (0.3 * product + 0.5) ** 3,
                "sigmoid": torch.tanh(0.3 * product + 0.5),
                "rbf": torch.exp(-0.3 * (u[t] - x[i]).square().sum()),
            }[name]
            assert_close(found[i, t], expected)


def test_the_solution_is_a_minimum():
    torch.manual_seed(0)
    x, y = torch.randn(30, 3).double(), torch.randn(30, 1).double()
    kernel = PointKernel("rbf", 0.5)
    machine = solved(kernel, x[:6], x, y, 1e-2)

    def value(alpha):
        inner = kernel(machine.points, machine.points)
        residual = kernel(machine.points, x) @ alpha + machine.bias - y
        return residual.square().mean() + 1e-2 * (alpha * (inner @ alpha)).sum()

    best = value(machine.alpha)
    for _ in range(5):
        assert value(machine.alpha + 1e-3 * torch.randn(6, 1).double()) >= best


def test_landmarks_descend():
    torch.manual_seed(0)
    x, z = torch.randn(120, 3).double(), torch.randn(90, 3).double()
    kernel = PointKernel("rbf", 0.5)

    def error(points):
        u, v = points
        made = kernel(v, x) @ torch.linalg.pinv(kernel(v, u), rtol=1e-6) @ kernel(z, u)
        return float((made - kernel(z, x)).norm() / kernel(z, x).norm())

    def learned(steps):
        return learned_landmarks(lambda a, b: kernel(b, a), x, z, (8, 16), steps=steps, seed=0)

    assert error(learned(80)) < 0.8 * error(learned(0))


def test_a_restart_that_ended_in_nan_is_never_the_best():
    x, y = torch.randn(20, 2).double(), torch.randn(20, 1).double()
    calls = 0

    def loss(outputs, targets):
        nonlocal calls
        calls += 1  # of a restart two: its only step, and the objective
        mean = (outputs - targets).square().mean()
        return mean * torch.nan if calls <= broken else mean

    learner = Learner(
        PointKernel("rbf", 0.5), 3, l1=0.0, ridge=1e-2, steps=1, lr=0.1, seed=0, restarts=2
    )
    broken = 2
    assert torch.isfinite(learner.fit(x, y, loss)(x)).all()
    calls, broken = 0, 4
    with pytest.raises(FloatingPointError, match=r"is nan; expected a lower lr than 0\.1"):
        learner.fit(x, y, loss)
