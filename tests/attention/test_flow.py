"""Flow attention: conservation; its matrix is tested in test_factored.py."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.attention import FlowAttention


def make(**options):
    torch.manual_seed(0)
    return FlowAttention(8, 2, dtype=torch.float64, **options)


def test_equal_tokens_are_mixed_evenly():
    """All capacities are equal: sources compete with 1, sinks allocate sigmoid(1)."""
    x = torch.randn(1, 1, 8, dtype=torch.float64).expand(2, 6, 8)
    expected = torch.full((2, 6, 6), torch.tensor(1.0).sigmoid().item() / 6, dtype=torch.float64)
    assert_close(make()(x, need_weights=True)[1], expected, rtol=1e-6, atol=1e-6)


def test_the_ratio_of_the_lengths_counts():
    """Twice as many queries as keys: allocation is sigmoid(I' N / M), with I' = M / N here."""
    x = torch.ones(1, 6, 8, dtype=torch.float64)
    weights = make()(x, x[:, :3].clone(), need_weights=True)[1]
    expected = torch.ones(1, 6, dtype=torch.float64).sigmoid()
    assert_close(weights.sum(-1), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [1, 5])
def test_state_counts_valid_positions(length):
    layer = make(causal=True)
    ignore = torch.zeros(2, length, dtype=torch.bool)
    ignore[0, 0] = True
    _, state = layer.prefill(torch.randn(2, length, 8, dtype=torch.float64), ignore)
    assert state.seen.tolist() == [length - 1, length]
    for sums in (state.keys, state.queries, state.keys_by_flow, state.queries_by_flow):
        assert sums.shape == (2, 2, 4)
        assert (sums[1] > 0).all()
        assert (sums[0] > 0).all() == (length > 1)


def test_a_stream_may_begin_with_padding():
    layer, x = make(causal=True), torch.randn(2, 4, 8, dtype=torch.float64)
    _, state = layer.prefill(x[:, :2], torch.ones(2, 2, dtype=torch.bool))
    out, _ = layer.prefill(x[:, 2:], state=state)
    assert_close(out, layer(x[:, 2:])[0])
