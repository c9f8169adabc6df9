"""Primal attention between heads is the layer whose dual variables go through the values."""

import pytest
import torch

import primal_attention as pa
from primal_attention.attention.primal.heads import HeadsPrimalAttention


def pair(feature_map, causal):
    """A layer, its mechanism, and a map to values, so that V_e = U_e^T W_v, V_r = U_r^T W_v."""
    torch.manual_seed(0)
    kind = {"rank": 3, "causal": causal, "feature_map": feature_map, "dtype": torch.float64}
    layer = pa.PrimalAttention(8, 2, weights="tied", **kind)
    heads = HeadsPrimalAttention(2, 4, **kind)
    w_v = torch.randn(2, 4, 8, dtype=torch.float64)
    with torch.no_grad():
        layer.dual_weight.copy_((heads.dual.mT @ w_v).flatten(0, 2))
        for name in ("weight", "bias"):
            getattr(layer.concat, name).copy_(getattr(heads.concat, name))
        layer.sqrt_lambda.copy_(heads.sqrt_lambda)
        layer.feature_map.load_state_dict(heads.feature_map.state_dict())
    return layer, heads, w_v


def unit(*shape):
    """Rows of mean square 1: what the layer makes of any row before its positive features, where
    heads take queries and keys as they come."""
    x = torch.randn(shape, dtype=torch.float64)
    return x / x.square().mean(-1, keepdim=True).sqrt()


def rows(layer, w_v, x):
    qk = torch.nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    q, k = qk.unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
    return q, k, torch.einsum("bnd,hpd->bhnp", x, w_v)


@pytest.mark.parametrize("feature_map", ["cosine", "elu", "exp"])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_layer_and_its_term_of_the_loss(feature_map, causal):
    layer, heads, w_v = pair(feature_map, causal)
    x = unit(2, 9, 8)
    ignore = torch.zeros(2, 9, dtype=torch.bool)
    ignore[1, 5:] = True
    for mask in (None, ignore):
        expected, _ = layer(x, key_padding_mask=mask)
        found, _ = heads(*rows(layer, w_v, x), mask)
        found = layer.out_proj(found.transpose(1, 2).flatten(2))
        keep = slice(None) if mask is None else ~mask
        torch.testing.assert_close(found[keep], expected[keep])
        torch.testing.assert_close(pa.ksvd_loss(heads), pa.ksvd_loss(layer))


@pytest.mark.parametrize("feature_map", ["cosine", "elu"])
def test_continues_from_a_state(feature_map):
    layer, heads, w_v = pair(feature_map, causal=True)
    q, k, v = rows(layer, w_v, torch.randn(2, 9, 8, dtype=torch.float64))
    whole, _ = heads(q, k, v)
    first, state = heads(q[:, :, :4], k[:, :, :4], v[:, :, :4])
    rest, _ = heads(q[:, :, 4:], k[:, :, 4:], v[:, :, 4:], None, state)
    torch.testing.assert_close(torch.cat([first, rest], 2), whole)


@pytest.mark.parametrize("feature_map", ["cosine", "elu"])
def test_between_two_sequences(feature_map):
    layer, heads, w_v = pair(feature_map, causal=False)
    q, _, _ = rows(layer, w_v, torch.randn(2, 5, 8, dtype=torch.float64))
    _, k, v = rows(layer, w_v, torch.randn(2, 7, 8, dtype=torch.float64))
    phi_q = heads.feature_map(torch.stack([q, q], 1))[:, 0]
    phi_k = heads.feature_map(torch.stack([k, k], 1))[:, 1]
    kernel = phi_q @ phi_k[:, :, :6].mT  # the last key is ignored
    kernel = kernel / (kernel.sum(-1, keepdim=True) if heads.feature_map.positive else 6)
    e = kernel @ (v[:, :, :6] @ heads.dual[1])
    expected = e @ heads.concat.weight[:, :3].mT + heads.concat.bias
    ignore = torch.zeros(2, 7, dtype=torch.bool)
    ignore[:, 6] = True
    torch.testing.assert_close(heads(q, k, v, ignore, cross=True)[0], expected)
