"""The moments of a primal layer are those of the rows it was called with."""

import pytest
import torch

import primal_attention as pa


@pytest.mark.parametrize("feature_map", ["elu", "cosine"])
def test_the_place_of_the_batch_changes_nothing(feature_map):
    torch.manual_seed(0)
    options = {"rank": 3, "feature_map": feature_map, "dtype": torch.float64}
    first = pa.PrimalAttention(8, 2, **options).eval()
    second = pa.PrimalAttention(8, 2, **options, batch_first=False).eval()
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    ignore = torch.zeros(3, 7, dtype=torch.bool)
    ignore[1, 4:] = True
    for look in (pa.spectrum, pa.ksvd_diagnostics):
        expected = look(first, {"query": x, "key_padding_mask": ignore})
        found = look(second, {"query": x.transpose(0, 1), "key_padding_mask": ignore})
        assert str(found) == str(expected)
