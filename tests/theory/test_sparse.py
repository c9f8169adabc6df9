"""A sparse kernel is the kernel of its entries, and `ksvd` takes it by products alone."""

import numpy as np
import pytest
import torch

from primal_attention import ksvd
from primal_attention.theory.sparse import SparseKernel


def kernel(rows=40, columns=30, entries=150, seed=0):
    g = torch.Generator().manual_seed(seed)
    at = (
        torch.randint(rows, (entries,), generator=g),
        torch.randint(columns, (entries,), generator=g),
    )
    values = torch.randn(entries, generator=g, dtype=torch.float64)
    dense = torch.zeros(rows, columns, dtype=torch.float64).index_put_(at, values, accumulate=True)
    return SparseKernel(*at, values, (rows, columns)), dense


def test_products_are_those_of_the_dense_matrix():
    sparse, dense = kernel()
    v = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(sparse.dense(), dense)
    torch.testing.assert_close(sparse.matvec(v), dense @ v)
    torch.testing.assert_close(sparse.rmatvec(dense @ v), dense.mT @ dense @ v)
    torch.testing.assert_close(sparse.row_sums(), dense.sum(1))
    torch.testing.assert_close(sparse.frobenius_norm(), dense.norm())
    assert sparse.entries == int((dense != 0).sum())


@pytest.mark.parametrize("method", ["dense", "iterative"])
def test_ksvd_is_that_of_scipy(method):
    linalg, matrices = (pytest.importorskip(f"scipy.sparse{name}") for name in (".linalg", ""))
    sparse, dense = kernel()
    _, sigma, _ = linalg.svds(matrices.csr_matrix(dense.numpy()), k=5)
    found = ksvd(sparse, 5, method=method)
    np.testing.assert_allclose(found.sigma.numpy(), np.sort(sigma)[::-1], rtol=1e-9)
    assert found.residual(sparse) < 1e-9


def test_a_large_kernel_is_never_formed(monkeypatch):
    monkeypatch.setattr(SparseKernel, "dense", lambda self: pytest.fail("the matrix was formed"))
    sparse, _ = kernel(6000, 5000, 20000)
    found = ksvd(sparse, 2, tol=1e-3)
    assert found.residual(sparse) < 1e-2


def test_entries_have_places():
    one = torch.tensor([1])
    with pytest.raises(ValueError, match="rows lie between 1 and 1; expected 0 to 0"):
        SparseKernel(one, one, torch.ones(1), (1, 2))
    with pytest.raises(ValueError, match="one number of entries"):
        SparseKernel(one, one, torch.ones(2), (2, 2))
