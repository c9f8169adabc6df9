"""No attention: every position by itself."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention.attention import NoneAttention


def make(**options):
    torch.manual_seed(0)
    layer = NoneAttention(6, 3, dtype=torch.float64, **options)
    for bias in (layer.in_proj_bias, layer.out_proj.bias):
        if bias is not None:
            torch.nn.init.normal_(bias)
    return layer


@pytest.mark.parametrize("bias", [True, False])
def test_two_linear_maps(bias):
    layer, x = make(bias=bias), torch.randn(2, 5, 6, dtype=torch.float64)
    expected = layer.out_proj(F.linear(x, layer.in_proj_weight, layer.in_proj_bias))
    assert_close(layer(x)[0], expected)
    assert len(list(layer.parameters())) == (4 if bias else 2)
    assert layer.in_proj_weight.shape == (6, 6)


def test_positions_do_not_see_each_other():
    layer, x = make(), torch.randn(1, 5, 6, dtype=torch.float64)
    other = x.clone()
    other[:, 2] += 1
    same = (layer(x)[0] == layer(other)[0]).all(-1)[0]
    assert same.tolist() == [True, True, False, True, True]


def test_the_matrix_is_the_identity():
    layer, x = make(), torch.randn(2, 3, 6, dtype=torch.float64)
    ignore = torch.tensor([[False, True, False], [False, False, False]])
    _, weights = layer(x, key_padding_mask=ignore, need_weights=True)
    expected = torch.diag_embed((~ignore).double())
    assert torch.equal(weights, expected)
    assert torch.equal(layer.factors(x, key_padding_mask=ignore).dense()[:, 1], expected)


def test_causal_is_the_same_and_streams():
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    layer = make(causal=True)
    assert torch.equal(layer(x)[0], make()(x)[0])
    with pytest.raises(ValueError, match="the state has batch size 3; expected 2"):
        layer.step(x[:, 0], layer.init_state(3))
    with pytest.raises(ValueError, match="causal=True"):
        make().init_state(2)
