"""Softmax attention with dropout in tiles: the plain expression with the same entries dropped."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from primal_attention import SoftmaxAttention
from primal_attention.kernels import dropped_softmax as dropped
from primal_attention.kernels.random_bits import draw_mask, keep_scale

P = 0.3


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def make_mask(kind, batch, heads, queries, keys):
    """A mask in which every query sees the first key."""
    if kind is None:
        return None
    shape = {
        "padding": (batch, 1, 1, keys), "pairs": (1, 1, queries, keys),
        "heads": (1, heads, queries, keys), "all": (batch, heads, queries, keys),
        "added": (batch, heads, queries, keys),
    }[kind]  # fmt: skip
    numbers = draw(*shape, seed=5)
    if kind == "added":
        return numbers
    seen = numbers > 0
    seen[..., 0] = True
    return seen


def plain(q, k, v, mask, keep):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    return (scores.softmax(-1) * keep * keep_scale(P)) @ v


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([None, "padding", "pairs", "heads", "all", "added"]),
    sizes=st.tuples(*(st.integers(1, n) for n in (3, 3, 7, 7))),
    tile=st.sampled_from([1, 5, 16, 40, 10_000]),
    copied=st.booleans(),
)
def test_forward_and_backward(kind, sizes, tile, copied):
    batch, heads, queries, keys = sizes
    shapes = [(batch, queries, heads, 4), (batch, keys, heads, 4), (batch, keys, heads, 3)]
    inputs = [draw(*shape, seed=n).transpose(1, 2) for n, shape in enumerate(shapes)]
    inputs = [(x.contiguous() if copied else x).requires_grad_() for x in inputs]
    mask = make_mask(kind, batch, heads, queries, keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropped, "TILE", tile)
        torch.manual_seed(1)
        out = dropped.dropped_softmax(*inputs, mask, P)
        probe = draw(*out.shape, seed=9)
        found = torch.autograd.grad((out * probe).sum(), inputs)
    torch.manual_seed(1)
    keep = draw_mask(batch * heads * queries * keys, P).view(batch, heads, queries, keys)
    expected = plain(*inputs, mask, keep)
    assert_close(out, expected)
    for ours, theirs in zip(
        found, torch.autograd.grad((expected * probe).sum(), inputs), strict=True
    ):
        assert_close(ours, theirs)


def test_a_query_that_sees_nothing_spoils_nothing():
    q, k, v = (draw(2, 1, 3, 4, seed=n).requires_grad_() for n in range(3))
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[1, 0, 2] = False
    torch.manual_seed(0)
    out = dropped.dropped_softmax(q, k, v, mask, P)
    (grad,) = torch.autograd.grad(out.masked_fill(~mask[..., :1], 0.0).sum(), k)
    assert out.isfinite().all()
    torch.manual_seed(0)
    whole = dropped.dropped_softmax(q, k, v, None, P)
    assert_close(out[mask[..., 0]], whole[mask[..., 0]])
    expected = torch.autograd.grad(whole.masked_fill(~mask[..., :1], 0.0).sum(), k)[0]
    assert_close(grad, expected)


def test_the_mean_is_the_attention_without_dropout():
    q, k, v = (draw(1, 1, 3, 4, seed=n).expand(2000, 1, 3, 4) for n in range(3))
    torch.manual_seed(0)
    many = dropped.dropped_softmax(q, k, v, None, P)
    expected = nn.functional.scaled_dot_product_attention(q[:1], k[:1], v[:1])[0]
    error = (many.mean(0) - expected) / (many.std(0) / 2000**0.5)
    assert error.abs().max() < 4  # in standard errors, of 12 numbers
    assert many.std(0).min() > 0.05


@pytest.fixture
def calls(monkeypatch):
    seen = []

    def watched(q, k, v, mask, dropout):
        seen.append(dropout)
        return original(q, k, v, mask, dropout)

    original = dropped.dropped_softmax
    monkeypatch.setattr(dropped, "dropped_softmax", watched)
    return seen


def test_where_it_serves(calls):
    layer = SoftmaxAttention(8, 2, dropout=P)
    x = torch.randn(2, 5, 8)
    layer(x)
    assert calls.pop() == P
    layer.eval()(x)
    SoftmaxAttention(8, 2)(x)
    SoftmaxAttention(8, 2, dropout=P).bfloat16()(x.bfloat16())
    learned = torch.zeros(5, 5, requires_grad=True)
    layer.train()(x, attn_mask=learned)[0].sum().backward()
    assert learned.grad.abs().sum() > 0
    assert calls == []


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_a_layer_that_drops_almost_nothing(causal, padded, calls):
    """All of the layer's masks reach the tiles: with p near zero, nothing but them counts."""
    layer = SoftmaxAttention(8, 2, causal=causal, dropout=1e-9).double()
    x = draw(3, 6, 8)
    ignore = torch.arange(6) >= torch.tensor([[6], [4], [0]]) if padded else None
    out, _ = layer(x, key_padding_mask=ignore)
    assert calls
    assert_close(out, layer.eval()(x, key_padding_mask=ignore)[0])


def test_a_second_derivative_is_refused_or_right():
    x = draw(1, 3, 8).requires_grad_()
    layer = SoftmaxAttention(8, 2, dropout=P).double()

    def second():
        (first,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)

    with pytest.raises(RuntimeError, match=r"no second derivative .*SDPBackend.MATH"):
        second()
    with sdpa_kernel(SDPBackend.MATH):
        assert second()[0].abs().sum() > 0
