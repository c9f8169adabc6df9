"""Products of all groups of a tile."""

import pytest
import torch

from primal_attention.kernels.tiles import SHORT, add_outer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("positions", [SHORT - 1, SHORT])
@pytest.mark.parametrize("groups", [1, 3, 1024])
def test_a_sum_of_outer_products_is_rounded_once(groups, positions, dtype):
    """Of one sign: added group by group, bfloat16 would lose most of 1,024 groups."""
    torch.manual_seed(0)
    block = torch.rand(groups, 6, positions).to(dtype)
    rows = torch.rand(groups, positions, 5).to(dtype)
    total = torch.zeros(6, 5, dtype=dtype)
    add_outer(block, rows, total)
    expected = torch.einsum("gcm,gmd->cd", block.double(), rows.double())
    error = (total.double() - expected).norm() / expected.norm()
    assert error < {torch.bfloat16: 3e-3, torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
