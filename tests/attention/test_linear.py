"""Linear attention; its matrix is tested in test_factored.py."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.testing import assert_close

from primal_attention.attention import LinearAttention
from primal_attention.attention.linear import _features
from primal_attention.theory import Elu


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


@pytest.mark.parametrize("name", ["elu", "softmax", "exp"])
def test_other_features(name):
    """The matrix by hand, in both orders of the products, and a stream."""
    torch.manual_seed(0)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    for causal in (False, True):
        layer = LinearAttention(8, 2, feature_map=name, causal=causal, dtype=torch.float64)
        with torch.no_grad():
            layer.in_proj_bias.normal_()
            for parameter in layer.feature_map.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        q, k, v = (x @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(3, -1)
        sides = torch.stack([q, k], 1).unflatten(-1, (2, 4)).transpose(2, 3)  # (B, z, h, N, p)
        left, right = layer.feature_map(sides).unbind(1)
        kernel = left @ right.mT
        kernel = kernel.tril() if causal else kernel
        kernel = kernel / kernel.sum(-1, keepdim=True)
        heads = kernel @ v.unflatten(-1, (2, 4)).transpose(1, 2)
        expected = layer.out_proj(heads.transpose(1, 2).flatten(2))
        out, weights = layer(x, need_weights=True, average_attn_weights=False)
        assert_close(out, expected)
        assert_close(weights, kernel)
        if causal:
            before, state = layer.prefill(x[:, :5])
            after, _ = layer.prefill(x[:, 5:], state=state)
            assert_close(torch.cat([before, after], 1), expected)


def test_features_must_be_positive():
    with pytest.raises(ValueError, match="feature_map is 'cosine'; expected a positive one"):
        LinearAttention(8, 2, feature_map="cosine")
    with pytest.raises(ValueError, match="learned power; expected a fixed one"):
        LinearAttention(8, 2, feature_map=Elu(4, 2, learn_power=True))


def test_forward_mode():
    layer = LinearAttention(8, 2, dtype=torch.float64)
    x, tangent = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    ahead, behind = (layer(x + step * tangent)[0] for step in (1e-6, -1e-6))
    _, found = torch.func.jvp(lambda y: layer(y)[0], (x,), (tangent,))
    assert_close(found, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent))[0]).tangent
        assert_close(found, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)
