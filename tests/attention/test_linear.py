"""Linear attention; its matrix is tested in test_factored.py."""

import torch
from torch.testing import assert_close

from primal_attention.attention import LinearAttention
from primal_attention.attention.linear import _features


def test_rows_sum_to_one():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    for causal in (False, True):
        layer = LinearAttention(8, 2, causal=causal, dtype=torch.float64)
        _, weights = layer(x, need_weights=True)
        assert_close(weights.sum(-1), torch.ones(2, 7, dtype=torch.float64))
        assert (weights >= 0).all()


def test_features_are_elu_plus_one():
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.elu(x) + 1
    assert_close(_features(x), expected)
    (ours,) = torch.autograd.grad(_features(x).square().sum(), x)
    (right,) = torch.autograd.grad(expected.square().sum(), x)
    assert_close(ours, right)


def test_features_have_second_derivatives_and_batches():
    x = torch.tensor([-1.5, -0.2, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(_features, x)
    assert_close(torch.vmap(_features)(x), _features(x))


def test_parameters_are_those_of_multihead_attention():
    theirs = torch.nn.MultiheadAttention(8, 2).state_dict()
    ours = LinearAttention(8, 2)
    assert {n: p.shape for n, p in ours.state_dict().items()} == {
        n: p.shape for n, p in theirs.items()
    }
    ours.load_state_dict(theirs)
