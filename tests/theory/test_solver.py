import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from primal_attention.theory import DenseKernel, KernelFactors, dual_variables, ksvd

EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Products:
    """A kernel known by its products only; one vector at a time."""

    def __init__(self, matrix):
        self.matrix, self.shape = matrix, tuple(matrix.shape)

    def matvec(self, v):
        assert v.ndim == 1
        return self.matrix @ v

    def rmatvec(self, v):
        assert v.ndim == 1
        return self.matrix.T @ v


@pytest.fixture
def spectrum(randn):
    """A matrix with given singular values."""

    def make(n, m, sigma):
        sigma = torch.as_tensor(sigma, dtype=torch.float64)
        u = torch.linalg.qr(randn(n, len(sigma))).Q
        v = torch.linalg.qr(randn(m, len(sigma))).Q
        return (u * sigma) @ v.T

    return make


def check(found, matrix, s):
    u, sigma, vh = torch.linalg.svd(matrix, full_matrices=False)
    assert_close(found.sigma, sigma[:s], **EXACT)
    identity = torch.eye(s, dtype=torch.float64)
    assert_close(found.left.T @ found.left, identity, **EXACT)
    assert_close(found.right.T @ found.right, identity, **EXACT)
    assert found.residual(matrix) < 1e-10
    # the subspaces, which unlike the vectors are unique up to sign
    assert_close(found.left @ found.left.T, u[:, :s] @ u[:, :s].T, rtol=0, atol=1e-9)
    assert_close(found.right @ found.right.T, vh[:s].T @ vh[:s], rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [(150, 100), (100, 150), (120, 120), (12, 9), (5, 30)])
@pytest.mark.parametrize("s", [1, 4])
def test_iterative_is_dense(spectrum, size, s):
    matrix = spectrum(*size, [0.8**i for i in range(min(size))])
    dense = ksvd(matrix, s, method="dense")
    iterative = ksvd(matrix, s, method="iterative")
    check(dense, matrix, s)
    check(iterative, matrix, s)
    assert_close(iterative.left, dense.left, rtol=0, atol=1e-9)  # signs are fixed
    assert_close(iterative.right, dense.right, rtol=0, atol=1e-9)


def test_iterative_on_a_flat_spectrum(randn):
    matrix = randn(300, 200)  # Gaussian: the singular values crowd at the top
    check(ksvd(matrix, 3, method="iterative"), matrix, 3)


def test_iterative_finds_repeated_singular_values(spectrum):
    matrix = spectrum(90, 80, [3.0, 3.0, 3.0] + [0.5**i for i in range(70)])
    check(ksvd(matrix, 3, method="iterative"), matrix, 3)


def test_iterative_seeds_agree(spectrum):
    matrix = spectrum(90, 80, [0.7**i for i in range(80)])
    one, two = (ksvd(matrix, 4, method="iterative", seed=seed) for seed in (0, 1))
    assert_close(one.left, two.left, rtol=0, atol=1e-9)


def test_every_kind_of_kernel(randn):
    a, b = randn(60, 6), randn(40, 6)
    matrix = a @ b.T
    kernels = {
        "tensor": matrix,
        "ndarray": matrix.numpy(),
        "factors": KernelFactors(a, b),
        "dense": DenseKernel(matrix),
        "products": Products(matrix),
    }
    for kernel in kernels.values():
        found = ksvd(kernel, 3)
        check(found, matrix, 3)
        assert found.residual(kernel) < 1e-10
    for method in ("dense", "iterative"):
        check(ksvd(KernelFactors(a, b), 3, method=method), matrix, 3)


def test_a_scipy_operator(randn):
    sparse = pytest.importorskip("scipy.sparse.linalg")
    matrix = randn(40, 30)
    check(ksvd(sparse.aslinearoperator(matrix.numpy()), 3), matrix, 3)


def test_numpy_integers():
    matrix = np.array([[3, 0], [0, -2], [0, 0]])
    assert_close(ksvd(matrix, 2).sigma, torch.tensor([3.0, 2.0], dtype=torch.float64))


def test_factors_of_many_positions(randn):
    """20,000 x 30,000 could not be formed; both methods agree on it."""
    k = KernelFactors(randn(20_000, 8), randn(30_000, 8))
    exact, iterative = ksvd(k, 3), ksvd(k, 3, method="iterative")
    assert_close(iterative.sigma, exact.sigma, rtol=1e-10, atol=0)
    assert_close(iterative.left, exact.left, rtol=0, atol=1e-9)
    assert exact.residual(k) < 1e-12


def test_large_matrices_are_solved_by_products(monkeypatch, spectrum):
    from primal_attention.theory import solver

    matrix = spectrum(60, 50, [0.6**i for i in range(50)])
    monkeypatch.setattr(solver, "_DENSE_SIZE", 10)
    monkeypatch.setattr(DenseKernel, "svd", None)  # a call would fail
    check(ksvd(matrix, 2), matrix, 2)


def test_lam_is_the_inverse(randn):
    found = ksvd(randn(8, 6), 3)
    assert_close(found.lam * found.sigma, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("method", ["dense", "iterative"])
def test_zero_singular_values(randn, method):
    phi_q, phi_k = randn(9, 2), randn(8, 2)
    found = ksvd(phi_q @ phi_k.T, 3, method=method)
    assert found.rank == 2
    assert found.residual(phi_q @ phi_k.T) < 1e-10
    assert_close(found.left.T @ found.left, torch.eye(3, dtype=torch.float64), **EXACT)
    with pytest.raises(ValueError, match=r"sigma\[2\] = .* expected s <= 2"):
        _ = found.lam
    with pytest.raises(ValueError, match=r"sigma\[2\]"):
        found.primal_weights(phi_q, phi_k)


@pytest.mark.parametrize("method", ["dense", "iterative"])
def test_the_zero_kernel(method):
    found = ksvd(torch.zeros(5, 4).double(), 2, method=method)
    assert (found.sigma == 0).all()
    assert found.rank == 0
    assert found.residual(torch.zeros(5, 4)) == 0
    with pytest.raises(ValueError, match="expected s <= 0"):
        _ = found.lam


def test_float32(randn):
    matrix = randn(50, 40, dtype=torch.float32)
    for method in ("dense", "iterative"):
        found = ksvd(matrix, 3, method=method)
        assert found.sigma.dtype == torch.float32
        assert_close(found.sigma, torch.linalg.svdvals(matrix)[:3], rtol=1e-5, atol=0)


def test_no_gradient_flows(randn):
    assert not ksvd(randn(5, 4).requires_grad_(), 2).sigma.requires_grad


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 14), m=st.integers(1, 14), s=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_any_size(n, m, s, seed):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(n, m, generator=generator, dtype=torch.float64)
    s = min(s, n, m)
    found = ksvd(matrix, s, method="iterative", seed=seed)
    assert_close(found.sigma, torch.linalg.svdvals(matrix)[:s], **EXACT)
    assert found.residual(matrix) < 1e-10


def test_it_says_when_it_does_not_converge(randn):
    with pytest.raises(RuntimeError, match="max_iter = 2 blocks"):
        ksvd(randn(300, 200), 3, method="iterative", max_iter=2)
    with pytest.raises(RuntimeError, match="tol = 1e-30"):
        ksvd(randn(300, 200), 3, method="iterative", tol=1e-30, max_iter=60)


def test_bad_inputs(randn):
    matrix = randn(6, 4)
    for s in (0, 5):
        with pytest.raises(ValueError, match=f"s is {s}; expected 1 <= s <= 4"):
            ksvd(matrix, s)
    with pytest.raises(ValueError, match="s is 3; expected 1 <= s <= 2"):
        ksvd(KernelFactors(randn(6, 2), randn(5, 2)), 3)
    with pytest.raises(ValueError, match="'fast'"):
        ksvd(matrix, 2, method="fast")
    with pytest.raises(ValueError, match=r"shape \(2, 6, 4\); expected \(N, M\)"):
        ksvd(randn(2, 6, 4), 2)
    with pytest.raises(ValueError, match="asked of a Products"):
        ksvd(Products(matrix), 2, method="dense")
    with pytest.raises(ValueError, match="expected a real one"):
        ksvd(torch.eye(3, dtype=torch.complex128), 2)
    for bad in (torch.nan, torch.inf):
        broken = matrix.clone()
        broken[2, 1] = bad
        for kernel in (broken, broken.numpy(), KernelFactors(broken, matrix), Products(broken)):
            with pytest.raises(ValueError, match="NaN or infinite"):
                ksvd(kernel, 2)
    found = ksvd(matrix, 2)
    with pytest.raises(ValueError, match="phi_q has 4 rows; expected 6"):
        found.primal_weights(randn(4, 3), randn(4, 3))
    with pytest.raises(ValueError, match="2, 3 and 2 directions"):
        dual_variables(randn(4, 2), randn(4, 3), randn(2))
