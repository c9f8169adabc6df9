"""The start of a converted layer."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention.adapters.base import Projection, Source
from primal_attention.convert import convert_
from primal_attention.convert.core import build_core
from primal_attention.convert.settings import Options

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def linear(rows, columns, bias=True):
    torch.manual_seed(rows + columns)
    weight = torch.randn(rows, columns, dtype=torch.float64)
    return Projection(weight, torch.randn(rows, dtype=torch.float64) if bias else None)


def source(width=12, heads=3, groups=1, **facts):
    inner = heads * 4
    return Source(
        num_heads=heads, key_heads=heads // groups, query=linear(inner, width),
        key=linear(inner // groups, width), value=linear(inner // groups, width),
        output=linear(width, inner), **facts,
    )  # fmt: skip


def build(source, **options):
    return build_core(source, Options(**options).resolve(source))


@pytest.mark.parametrize("weights", ["data", "free", "tied"])
def test_projections_are_taken_over(weights):
    old = source()
    new = build(old, rank=2, weights=weights)
    assert torch.equal(new.in_proj_weight, torch.cat([old.query.weight, old.key.weight]))
    assert torch.equal(new.in_proj_bias, torch.cat([old.query.bias, old.key.bias]))
    assert torch.equal(new.out_proj.weight, old.output.weight)


@pytest.mark.parametrize("weights", ["data", "free"])
def test_without_values_the_layer_starts_silent(weights):
    """... up to the constant that softmax makes of the values' bias."""
    old = source()
    out, _ = build(old, rank=2, weights=weights)(torch.randn(2, 5, 12, dtype=torch.float64))
    constant = old.output.weight @ old.value.bias + old.output.bias
    assert_close(out, constant.expand_as(out), **CLOSE)


@pytest.mark.parametrize("rank", [2, 4, 6])
def test_tied_weights_start_as_attention_with_the_old_values(rank):
    """out = W_o [1/N sum_j <phi(q_i), phi(k_j)> U U^T v_j] + constants, U of min(s, p) columns."""
    old = source()
    new = build(old, rank=rank, weights="tied", feature_map="cosine")
    x = torch.randn(2, 5, 12, dtype=torch.float64)

    def heads(part):
        return (x @ part.weight.T).unflatten(-1, (3, 4)).transpose(1, 2)  # (B, h, N, p)

    bias = [b.view(3, 1, 4) for b in (old.query.bias, old.key.bias)]
    q, k = (
        nn.functional.normalize(heads(p) + b, dim=-1)
        for p, b in zip((old.query, old.key), bias, strict=True)
    )
    values = heads(old.value)
    stacked = old.value.weight.unflatten(0, (3, 4)).transpose(0, 1).flatten(1)  # (p, h * d)
    u = torch.linalg.svd(stacked).U[:, :rank]
    mixed = q @ k.mT @ values @ u @ u.T / 5
    constant = old.output.weight @ old.value.bias + old.output.bias
    expected = mixed.transpose(1, 2).flatten(2) @ old.output.weight.T + constant
    assert_close(new(x)[0], expected, **CLOSE)


def test_exponential_features_start_near_softmax():
    """With values and positive random features, the start estimates the original attention."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.MultiheadAttention(32, 2, batch_first=True, dtype=torch.float64))
    x = torch.randn(4, 30, 32, dtype=torch.float64)
    before, _ = model[0](x, x, x, need_weights=False)

    def error(feature_map):
        convert_(model, rank=16, weights="tied", feature_map=feature_map)
        after, _ = model[0](x, x, x)
        model[0] = model[0].conversion.original
        return ((after - before).square().mean() / before.square().mean()).item()

    assert error("exp") < 0.7 * error("cosine") < 0.7


def test_fresh_start_takes_nothing_over():
    old = source()
    new = build(old, rank=2, start="fresh")
    assert not torch.equal(new.in_proj_weight[:12], old.query.weight)
    assert new.concat.weight.any()


def test_key_heads_of_a_group_are_repeated():
    old = source(width=10, heads=4, groups=2, causal=True, rotary=True)
    new = build(old, rank=2)
    keys = new.in_proj_weight[16:].unflatten(0, (4, 4))
    own = old.key.weight.unflatten(0, (2, 4))
    assert torch.equal(keys, own[[0, 0, 1, 1]])
    value = old.value.bias.unflatten(0, (2, 4))[[0, 0, 1, 1]].flatten()
    assert_close(new.out_proj.bias, old.output.bias + old.output.weight @ value, **CLOSE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": linear(16, 10), "num_heads": 4}, "make 16; expected the width of the model, 10"),
        ({"output": linear(12, 8)}, "output projection has shape"),
        ({"key": linear(6, 12)}, "key or value projection has shape"),
    ],
)
def test_projections_that_do_not_fit(change, message):
    parts = {name: linear(12, 12) for name in ("query", "key", "value", "output")}
    with pytest.raises(ValueError, match=message):
        build(Source(**({"num_heads": 3} | parts | change)), rank=2)


def test_type_and_device_are_those_of_the_old_layer():
    model = nn.Sequential(nn.MultiheadAttention(16, 2, dtype=torch.bfloat16))
    convert_(model, rank=8, weights="tied")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
