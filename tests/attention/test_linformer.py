"""Linformer attention against its formula, written out for each sequence alone."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from primal_attention import SoftmaxAttention
from primal_attention.attention import LinformerAttention

from .draws import draw, holes, randomised

BATCH, LENGTH, WIDTH, HEADS, LONGEST = 4, 11, 12, 3, 14
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make(**options) -> LinformerAttention:
    torch.manual_seed(1)
    options = {"max_length": LONGEST, "projection": 5, "dtype": torch.float64} | options
    layer = LinformerAttention(WIDTH, HEADS, **options)
    return randomised(layer)


def dense(layer: LinformerAttention, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Output (N, d) and matrices (h, N, M) of one call without padding: x asks y about z."""
    weights = layer.in_proj_weight.split(WIDTH)
    biases = (0.0, 0.0, 0.0) if layer.in_proj_bias is None else layer.in_proj_bias.split(WIDTH)
    q, k, v = (
        (t @ w.T + b).unflatten(-1, (HEADS, -1)).transpose(0, 1)
        for t, w, b in zip((x, y, z), weights, biases, strict=True)
    )
    e, f = layer.length_proj[0, :, : len(y)], layer.length_proj[-1, :, : len(y)]
    matrix = (q @ (e @ k).mT / layer.head_dim**0.5).softmax(-1) @ f
    return layer.out_proj((matrix @ v).transpose(0, 1).flatten(1)), matrix


@pytest.mark.parametrize("share_kv", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_is_the_matrix_of_its_formula(share_kv, bias):
    layer, ignore = make(share_kv=share_kv, bias=bias), holes(LENGTH)
    x = draw(BATCH, LENGTH, WIDTH).requires_grad_()
    leaves = [x, *layer.parameters()]
    rows = [dense(layer, *[x[i][~ignore[i]]] * 3)[0] for i in range(BATCH)]
    truth = torch.zeros_like(x).masked_scatter(~ignore[..., None], torch.cat(rows))
    out, weights = layer(x, key_padding_mask=ignore, need_weights=True, average_attn_weights=False)
    assert_close(out, truth, **EXACT)
    g = draw(*x.shape, seed=3)
    grads = [torch.autograd.grad(o, leaves, g, retain_graph=True) for o in (out, truth)]
    for ours, right in zip(*grads, strict=True):
        assert_close(ours, right, **EXACT)
    for i in range(BATCH):
        among = weights[i][:, ~ignore[i]]
        assert_close(among[:, :, ~ignore[i]], dense(layer, *[x[i][~ignore[i]]] * 3)[1], **EXACT)
        assert (weights[i][:, :, ignore[i]] == 0).all()
        assert (weights[i][:, ignore[i]] == 0).all()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("own_values", [False, True])
def test_cross_attention(padded, own_values):
    """The queries may be more than max_length."""
    layer = make()
    x, y = draw(BATCH, LONGEST + 6, WIDTH), draw(BATCH, LENGTH, WIDTH, seed=1)
    z = draw(BATCH, LENGTH, WIDTH, seed=2) if own_values else y
    ignore = holes(LENGTH) if padded else None
    out, weights = layer(x, y, z, ignore, need_weights=True, average_attn_weights=False)
    for i in range(BATCH):
        valid = slice(None) if ignore is None else ~ignore[i]
        expected, matrix = dense(layer, x[i], y[i][valid], z[i][valid])
        assert_close(out[i], expected, **EXACT)
        assert_close(weights[i][:, :, valid], matrix, **EXACT)


def test_identities_give_softmax():
    layer = make(projection=LENGTH, max_length=LENGTH)
    with torch.no_grad():
        layer.length_proj.copy_(torch.eye(LENGTH))
    softmax = SoftmaxAttention(WIDTH, HEADS, dtype=torch.float64)
    softmax.load_state_dict(layer.state_dict(), strict=False)
    results = []
    for attention in (layer, softmax):
        x = draw(BATCH, LENGTH, WIDTH).requires_grad_()
        out, weights = attention(x, need_weights=True)
        leaves = [x, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight]
        results.append([out, weights, *torch.autograd.grad(out.sin().sum(), leaves)])
    for ours, right in zip(*results, strict=True):
        assert_close(ours, right, **EXACT)


def test_a_longer_sequence_is_refused():
    layer = make()
    assert layer(draw(1, LONGEST, WIDTH))[0].shape == (1, LONGEST, WIDTH)
    with pytest.raises(ValueError, match="key has length 15; expected at most max_length = 14"):
        layer(draw(1, LONGEST + 1, WIDTH))
    with pytest.raises(ValueError, match="key has length 15"):
        layer.factors(draw(1, 2, WIDTH), draw(1, LONGEST + 1, WIDTH))


@pytest.mark.parametrize("own_values", [False, True])
def test_padding_beyond_max_length_does_not_count(own_values):
    layer = make()
    x, ignore = draw(2, LONGEST + 5, WIDTH), torch.zeros(2, LONGEST + 5, dtype=torch.bool)
    z = draw(*x.shape, seed=2) if own_values else x
    ignore[0, LONGEST:] = True
    ignore[1, 2:9] = True
    out, weights = layer(x, x, z, ignore, need_weights=True, average_attn_weights=False)
    for i, keep in enumerate(~ignore):
        rows, matrix = dense(layer, x[i, keep], x[i, keep], z[i, keep])
        assert_close(out[i, keep], rows, **EXACT)
        assert_close(weights[i][:, keep][:, :, keep], matrix, **EXACT)
        assert (weights[i][:, :, ~keep] == 0).all()
    ignore[0, LONGEST] = False
    with pytest.raises(ValueError, match="key has length 15; expected at most max_length = 14"):
        layer(x, key_padding_mask=ignore)


def test_dropout_leaves_the_reported_matrix_alone():
    layer, x = make(dropout=0.5), draw(BATCH, LENGTH, WIDTH)
    out, weights = layer(x, need_weights=True)
    layer.train()
    torch.manual_seed(0)
    dropped, same = layer(x, need_weights=True)
    assert_close(same, weights, **EXACT)
    assert not torch.equal(dropped, out)
    mean = layer(x[:1].expand(3000, -1, -1))[0].mean(0)
    assert (mean - out[0]).norm() < 0.1 * out[0].norm()


def test_options():
    assert LinformerAttention(WIDTH, HEADS, max_length=9).projection == 9
    assert LinformerAttention(WIDTH, HEADS, max_length=1000).projection == 256
    assert LinformerAttention(WIDTH, HEADS, max_length=9).length_proj.shape == (2, 9, 9)
    scale = LinformerAttention(WIDTH, HEADS, max_length=400).length_proj.std().item()
    assert 0.045 < scale < 0.055
    for options, message in [
        ({"max_length": 0}, "max_length is 0; expected an integer of at least 1"),
        ({"max_length": 9, "projection": 0}, "projection is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            LinformerAttention(WIDTH, HEADS, **options)
