"""A mechanism between heads is the layer without its projections."""

import pytest
import torch

import primal_attention as pa
from primal_attention.attention.heads import HeadsAttention

NAMES = sorted(set(pa.available_attentions()) - {"primal", "linformer", "lka"})
CAUSAL = [name for name in NAMES if pa.attention_info(name).causal]


def pair(name, **options):
    """A layer, and its mechanism with the same random numbers."""
    if name == "cosformer" and options.get("causal"):
        options["max_length"] = 16
    torch.manual_seed(0)
    layer = pa.make_attention(name, 8, 2, dtype=torch.float64, **options).eval()
    torch.manual_seed(0)
    return layer, HeadsAttention(
        pa.make_attention(name, 8, 2, dtype=torch.float64, **options)
    ).eval()


def heads_of(layer, x, ignore):
    call, values = layer._arrange(x, None, None, ignore)
    return layer._project(call, values)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in NAMES] + [(name, {"causal": True}) for name in CAUSAL],
)
def test_equals_the_layer(name, options):
    layer, heads = pair(name, **options)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    ignore = torch.zeros(2, 9, dtype=torch.bool)
    ignore[1, 5:] = True
    for mask in (None, ignore):
        torch.manual_seed(1)  # for those that draw
        found, _ = heads(*heads_of(layer, x, mask), mask)
        torch.manual_seed(1)
        expected, _ = layer(x, key_padding_mask=mask)
        rows = layer.out_proj(found.transpose(1, 2).flatten(2))
        keep = slice(None) if mask is None else ~mask
        torch.testing.assert_close(rows[keep], expected[keep])
    assert not [n for n, _ in heads.named_parameters() if "proj_weight" in n or "out_proj" in n]


@pytest.mark.parametrize("name", ["flow", "linear", "performer", "softmax"])
def test_continues_from_a_state(name):
    layer, heads = pair(name, causal=True)
    q, k, v = heads_of(layer, torch.randn(2, 7, 8, dtype=torch.float64), None)
    whole, _ = heads(q, k, v)
    first, state = heads(q[:, :, :3], k[:, :, :3], v[:, :, :3])
    rest, _ = heads(q[:, :, 3:], k[:, :, 3:], v[:, :, 3:], None, state)
    torch.testing.assert_close(torch.cat([first, rest], 2), whole)


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_in_half_precision(causal):
    """Sums over the positions leave the range of float16, what they are divided to does not."""
    torch.manual_seed(0)
    heads = HeadsAttention(pa.make_attention("linear", 8, 2, causal=causal, dtype=torch.float16))
    q, k, v = 30 * torch.rand(3, 1, 2, 3000, 4)
    found, _ = heads(q.half(), k.half(), v.half())
    assert found.dtype == torch.float16
    expected, _ = heads.float()(q, k, v)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=2e-2)


def test_refusals():
    with pytest.raises(ValueError, match="'linformer', which shortens the inputs"):
        HeadsAttention(pa.make_attention("linformer", 8, 2, max_length=4))
    with pytest.raises(ValueError, match="feature_map is given to 'linear'"):
        HeadsAttention(pa.make_attention("linear", 8, 2, feature_map="exp"))
    with pytest.raises(ValueError, match="PrimalAttention mixes no heads"):
        HeadsAttention(pa.PrimalAttention(8, 2))
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="NoneAttention is given two sequences"):
        HeadsAttention(pa.make_attention("none", 8, 2))(q, q, q, cross=True)
