"""The pass for a few positions gives what the passes for many give, state included."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from primal_attention import fold_
from primal_attention.attention.primal import layer as module
from primal_attention.kernels import dispatch

EXACT = {"rtol": 1e-10, "atol": 1e-11}
both = pytest.mark.parametrize("kind", ["free-causal", "tied-causal"])


def plainly(layer, x, state):
    """A call by the reference."""
    reference = copy.deepcopy(layer)
    reference.fast = False
    with torch.no_grad():
        return reference.prefill(x, state=state)


@pytest.fixture
def calls(monkeypatch):
    """The lengths of the calls that take this path."""
    seen = []

    def choose_path(x, *given, **options):
        path = dispatch.choose_path(x, *given, **options)
        seen.extend([x.shape[1]] if path == "decoding" else [])
        return path

    monkeypatch.setattr(module, "choose_path", choose_path)
    return seen


def assert_same(found, expected):
    assert_close(found[0], expected[0], **EXACT)
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_close(ours, theirs, **EXACT)


@both
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 4),
    length=st.sampled_from([1, 2, 3, 17, 64]),
    before=st.sampled_from([0, 1, 40]),
    bias=st.booleans(),
    rank=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_equals_the_plain_operations(
    kind, batch, length, before, bias, rank, seed, make_layer, make_rows
):
    layer = make_layer(kind, bias=bias, rank=rank, seed=seed).eval()
    state = layer.init_state(batch)
    if before:
        _, state = plainly(layer, make_rows(batch, before, 6, seed=seed + 1), state)
    x = make_rows(batch, length, 6, seed=seed)
    with torch.no_grad():
        found = layer.prefill(x, state=state)
    assert_same(found, plainly(layer, x, state))


@pytest.mark.parametrize("rank", [1, 9])  # folded to scores, folded to features
@pytest.mark.parametrize("length", [1, 5])
def test_folded(rank, length, make_layer, make_rows, calls):
    layer = make_layer("free-causal", rank=rank).eval()
    folded = fold_(copy.deepcopy(layer))
    x = make_rows(2, length, 6)
    with torch.no_grad():
        found = folded.prefill(x)
    assert calls == [length]
    assert_same(found, plainly(layer, x, layer.init_state(2)))


@both
def test_zero_rows_have_no_direction(kind, make_layer, make_rows):
    layer = make_layer(kind, bias=False).eval()
    x = torch.cat([torch.zeros(2, 2, 6).double(), make_rows(2, 2, 6)], dim=1)
    with torch.no_grad():
        found = layer.prefill(x)
        first, _ = layer.step(x[:, 0], layer.init_state(2))
    assert found[0].isfinite().all()
    assert_same(found, plainly(layer, x, layer.init_state(2)))
    assert_close(first, found[0][:, 0], **EXACT)


@both
@pytest.mark.parametrize("length", [1, 6])
def test_nan_stays_where_it_can_be_seen(kind, length, make_layer, make_rows):
    layer = make_layer(kind).eval()
    x = make_rows(2, length, 6)
    x[1, -1] = torch.nan
    with torch.no_grad():
        out, _ = layer(x)
    assert out[0].isfinite().all()
    assert out[1, :-1].isfinite().all()
    assert out[1, -1].isnan().all()


@both
def test_where_it_serves(kind, make_layer, make_rows, calls):
    layer = make_layer(kind).eval()
    x = make_rows(2, 3, 6)
    with torch.no_grad():
        layer(x)
        assert calls.pop() == 3
        layer(make_rows(1, dispatch.DECODED + 1, 6))  # too long
        layer(x, key_padding_mask=torch.zeros(2, 3, dtype=torch.bool))
        layer.train()(x)  # dropout, and the objective wants its sums
    layer.eval()(x)  # a gradient may be wanted
    with torch.no_grad():
        make_layer(kind, dtype=torch.bfloat16).eval()(x.bfloat16())
        make_layer(kind, feature_map="exp").eval()(x)
        make_layer(kind.removesuffix("-causal")).eval()(x)
    assert calls == []


@both
@pytest.mark.parametrize("length", [1, 4])
def test_an_empty_batch(kind, length, make_layer):
    layer = make_layer(kind).eval()
    with torch.no_grad():
        out, state = layer.prefill(torch.empty(0, length, 6).double())
    assert out.shape == (0, length, 6)
    assert state.seen.shape == (0,)


@both
def test_a_replaced_part_is_refused(kind, make_layer, make_rows):
    layer = make_layer(kind).eval()
    layer.out_proj = nn.Sequential(layer.out_proj)
    with torch.no_grad(), pytest.raises(TypeError, match="out_proj is a Sequential; expected"):
        layer(make_rows(2, 3, 6))
