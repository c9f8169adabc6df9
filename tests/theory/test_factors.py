import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from primal_attention.theory import DenseKernel, KernelFactors
from primal_attention.theory import factors as module

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SHAPES = [(9, 7, 4), (7, 9, 4), (3, 9, 4), (9, 2, 4), (3, 2, 4), (5, 5, 5), (6, 4, 1)]


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("size", SHAPES)
def test_factored_spectrum_is_the_dense_svd(factors, size, batch):
    k = factors(*size, batch)
    n, m, r = size
    rank = min(n, m, r)
    sigma = torch.linalg.svdvals(k.a @ k.b.mT)
    assert k.shape == (*batch, n, m)
    assert k.max_rank == rank
    assert_close(k.singular_values(), sigma[..., :rank], **EXACT)
    assert_close(k.singular_values(1), sigma[..., :1], **EXACT)
    assert sigma[..., rank:].abs().sum() < 1e-10


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("size", SHAPES)
def test_svd_reconstructs(factors, size, batch):
    k = factors(*size, batch)
    for kernel in (k, DenseKernel(k.dense())):
        u, sigma, v = kernel.svd()
        assert_close((u * sigma.unsqueeze(-2)) @ v.mT, k.a @ k.b.mT, **EXACT)
        identity = torch.eye(sigma.shape[-1], dtype=torch.float64).expand(*batch, -1, -1)
        assert_close(u.mT @ u, identity, **EXACT)
        assert_close(v.mT @ v, identity, **EXACT)
        assert (sigma.diff(dim=-1) <= 0).all()
        first = kernel.svd(1)
        assert first[0].shape == (*batch, size[0], 1)
        assert_close(first[1], sigma[..., :1], **EXACT)


def test_chunks_do_not_change_the_spectrum(factors, monkeypatch):
    k = factors(50, 33, 4)
    whole = k.singular_values()
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert_close(k.singular_values(), whole, **EXACT)


def test_spectrum_of_many_positions():
    """200,000 positions; the spectrum is known since the factors are orthogonal by construction."""
    n, r = 200_000, 4
    a = torch.zeros(n, r, dtype=torch.float64)
    for column in range(r):
        a[column::r, column] = (column + 1) / (n / r) ** 0.5  # disjoint supports, norm column + 1
    sigma = KernelFactors(a, a).singular_values()
    assert_close(sigma, torch.tensor([16.0, 9.0, 4.0, 1.0], dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_methods_agree_with_the_dense_matrix(factors, randn, batch):
    k = factors(9, 7, 4, batch)
    matrix = k.a @ k.b.mT
    rows, columns = [0, 5, 8], torch.tensor([1, 2])
    for kernel in (k, DenseKernel(matrix)):
        v, u = randn(7), randn(9)
        assert_close(kernel.matvec(v), matrix @ v, **EXACT)
        assert_close(kernel.rmatvec(u), matrix.mT @ u, **EXACT)
        block, other = randn(*batch, 7, 3), randn(*batch, 9, 3)
        assert_close(kernel.matvec(block), matrix @ block, **EXACT)
        assert_close(kernel.rmatvec(other), matrix.mT @ other, **EXACT)
        assert_close(kernel.row_sums(), matrix.sum(-1), **EXACT)
        assert_close(kernel.column_sums(), matrix.sum(-2), **EXACT)
        chosen = matrix[..., rows, :]
        assert_close(kernel.gram(rows), chosen @ chosen.mT, **EXACT)
        expected = chosen[..., columns].square().sum((-2, -1))
        assert_close(kernel.block_energy(rows, columns), expected, **EXACT)
        assert_close(kernel.block_energy(np.array(rows), slice(1, 3)), expected, **EXACT)
        mask = torch.zeros(9, dtype=torch.bool)
        mask[rows] = True
        assert_close(kernel.block_energy(mask, columns), expected, **EXACT)
        assert (kernel.block_energy([], columns) == 0).all()
        assert_close(kernel.frobenius_norm(), torch.linalg.matrix_norm(matrix), **EXACT)
        assert_close(kernel.dense(), matrix, **EXACT)
        sigma = torch.linalg.svdvals(matrix)[..., :4]
        share = sigma / sigma.sum(-1, keepdim=True)
        entropy = -(share * share.log()).sum(-1)
        assert_close(kernel.effective_rank(), entropy.exp(), **EXACT)
        variance = sigma.square().cumsum(-1) / sigma.square().sum(-1, keepdim=True)
        assert_close(kernel.explained_variance()[..., :4], variance, **EXACT)


def test_effective_rank_at_its_ends():
    assert DenseKernel(torch.eye(5).double()).effective_rank().item() == pytest.approx(5)
    assert DenseKernel(torch.ones(4, 6).double()).effective_rank().item() == pytest.approx(1)
    zero = DenseKernel(torch.zeros(4, 6))
    assert zero.effective_rank().item() == 0
    assert (zero.explained_variance() == 1).all()


@pytest.mark.parametrize("anchors", [None, 3, 5, 12])
def test_from_features(randn, anchors):
    phi_q, phi_k = randn(2, 9, 5), randn(2, 7, 5)
    f = None if anchors is None else randn(2, anchors, 5)
    k = KernelFactors.from_features(phi_q, phi_k, f)
    expected = phi_q @ phi_k.mT if f is None else (phi_q @ f.mT) @ (phi_k @ f.mT).mT
    assert_close(k.dense(), expected, **EXACT)
    assert k.a.shape[-1] == min(5, anchors or 5)


def test_from_features_with_repeated_anchors(randn):
    """A sequence shorter than the number of anchors repeats rows: F_X is rank deficient."""
    phi_q, phi_k, f = randn(4, 5), randn(4, 5), randn(2, 5)[[0, 0, 0, 1, 1, 1, 1]]
    k = KernelFactors.from_features(phi_q, phi_k, f)
    assert_close(k.dense(), (phi_q @ f.mT) @ (phi_k @ f.mT).mT, **EXACT)
    expected = torch.linalg.svdvals(k.dense())
    assert_close(k.singular_values(), expected[:4], **EXACT)


def test_half_precision_is_widened(randn):
    a, b = randn(9, 4).half(), randn(7, 4).half()
    k = KernelFactors(a, b)
    assert k.dtype == torch.float32
    expected = torch.linalg.svdvals(a.float() @ b.float().mT)[:4]
    assert_close(k.singular_values(), expected, rtol=1e-5, atol=1e-5)
    assert DenseKernel(a).singular_values().dtype == torch.float32


def test_batch_dimensions_broadcast(randn):
    k = KernelFactors(randn(2, 1, 6, 3), randn(4, 5, 3))
    assert k.shape == (2, 4, 6, 5)
    assert k.singular_values().shape == (2, 4, 3)
    u, sigma, v = k.svd()
    assert_close((u * sigma.unsqueeze(-2)) @ v.mT, k.dense(), **EXACT)


def test_singular_values_have_a_gradient(randn):
    a, b = randn(9, 3).requires_grad_(), randn(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: KernelFactors(a, b).singular_values(), (a, b))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 8), m=st.integers(1, 8), r=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_any_size(n, m, r, seed):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, r, generator=generator, dtype=torch.float64)
    b = torch.randn(m, r, generator=generator, dtype=torch.float64)
    k = KernelFactors(a, b)
    u, sigma, v = k.svd()
    assert_close(u @ torch.diag(sigma) @ v.mT, a @ b.mT, **EXACT)
    assert_close(k.singular_values(), sigma, **EXACT)
    assert_close(k.frobenius_norm(), sigma.norm(), **EXACT)
    rows = torch.randperm(n, generator=generator)[: (n + 1) // 2]
    rest = [i for i in range(n) if i not in rows]
    everything = slice(None)
    split = k.block_energy(rows, everything) + k.block_energy(rest, everything)
    assert_close(split, sigma.square().sum(), **EXACT)
    assert 1 - 1e-9 <= k.effective_rank().item() <= k.max_rank + 1e-9


def test_bad_inputs(randn, factors):
    with pytest.raises(ValueError, match=r"\(3, 4\) and b \(3, 5\)"):
        KernelFactors(randn(3, 4), randn(3, 5))
    with pytest.raises(ValueError, match="batch dimensions"):
        KernelFactors(randn(2, 3, 4), randn(3, 3, 4))
    with pytest.raises(ValueError, match="expected one p"):
        KernelFactors.from_features(randn(3, 4), randn(3, 4), randn(6, 5))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        DenseKernel(randn(3))
    k = factors(9, 7, 4)
    for bad in (0, 5):
        with pytest.raises(ValueError, match=f"k is {bad}; expected 1 <= k <= 4"):
            k.svd(bad)
        with pytest.raises(ValueError, match=f"k is {bad}"):
            k.singular_values(bad)
    with pytest.raises(ValueError, match=r"expected \(7,\) or"):
        k.matvec(randn(9))
    with pytest.raises(ValueError, match=r"expected \(9,\) or"):
        k.rmatvec(randn(7, 9))
    with pytest.raises(ValueError, match="expected one list"):
        k.gram(torch.zeros(2, 2, dtype=torch.long))
