"""Nystrom attention against the matrix that its formula defines, and against softmax."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primal_attention import SoftmaxAttention
from primal_attention.attention import NystromAttention
from primal_attention.attention.nystrom import convolve

from ..pairs import pairwise
from .draws import draw, holes, randomised

BATCH, WIDTH, HEADS = 4, 12, 3
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make(**options) -> NystromAttention:
    torch.manual_seed(1)
    layer = NystromAttention(WIDTH, HEADS, **({"dtype": torch.float64} | options))
    return randomised(layer)


def dense(layer: NystromAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Output (n, d) and matrices (h, n, n) of one sequence (n, d) without padding."""
    n, p = x.shape[0], layer.head_dim
    qkv = x @ layer.in_proj_weight.T + layer.in_proj_bias
    q, k, v = (t.view(n, HEADS, p).transpose(0, 1) for t in qkv.split(WIDTH, -1))

    def s(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.mT / p**0.5).softmax(-1)

    if n <= layer.landmarks:
        matrix = s(q, k)
    else:
        runs = np.array_split(np.arange(n), layer.landmarks)
        q_mean, k_mean = (torch.stack([t[:, r].mean(1) for r in runs], 1) for t in (q, k))
        a = s(q_mean, k_mean)
        z = a.mT / (a.sum(-1).amax(-1) * a.sum(-2).amax(-1))[:, None, None]
        one = torch.eye(a.shape[-1], dtype=a.dtype)
        for _ in range(layer.iterations):
            az = a @ z
            z = z @ (13 * one - 15 * az + 7 * az @ az - az @ az @ az) / 4
        matrix = s(q, k_mean) @ z @ s(q_mean, k)
    if layer.residual is not None:
        reach = layer.residual.shape[1] // 2
        for t in range(-min(reach, n - 1), min(reach, n - 1) + 1):
            diagonal = torch.diag(torch.ones(n - abs(t), dtype=x.dtype), t)
            matrix = matrix + layer.residual[:, t + reach, None, None] * diagonal
    out = (matrix @ v).transpose(0, 1).flatten(1)
    return layer.out_proj(out), matrix


@pairwise(length=[5, 16, 23], landmarks=[1, 4, 6], residual_width=[None, 1, 5])
def test_is_the_matrix_of_its_formula(length, landmarks, residual_width):
    layer = make(landmarks=landmarks, residual_width=residual_width)
    x, ignore = draw(BATCH, length, WIDTH), holes(length)
    leaves = [x.requires_grad_(), *layer.parameters()]
    truth = torch.zeros_like(x)
    rows = [dense(layer, x[i][~ignore[i]])[0] for i in range(BATCH)]
    truth = truth.masked_scatter(~ignore[..., None], torch.cat(rows))
    out, weights = layer(x, key_padding_mask=ignore, need_weights=True, average_attn_weights=False)
    assert_close(out, truth, **EXACT)
    g = draw(*x.shape, seed=3)
    grads = [torch.autograd.grad(o, leaves, g, retain_graph=True) for o in (out, truth)]
    for ours, right in zip(*grads, strict=True):
        assert_close(ours, right, **EXACT)
    for i in range(BATCH):
        among = weights[i][:, ~ignore[i]]
        assert_close(among[:, :, ~ignore[i]], dense(layer, x[i][~ignore[i]])[1], **EXACT)
        assert (weights[i][:, :, ignore[i]] == 0).all()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("landmarks", [9, 50])
def test_as_many_landmarks_as_positions_give_softmax(landmarks, padded):
    length = 9
    layer = make(landmarks=landmarks, residual_width=None)
    softmax = SoftmaxAttention(WIDTH, HEADS, dtype=torch.float64)
    softmax.load_state_dict(layer.state_dict())
    ignore = holes(length) if padded else None
    results = []
    for attention in (layer, softmax):
        x = draw(BATCH, length, WIDTH).requires_grad_()
        out, _ = attention(x, key_padding_mask=ignore)
        results.append([out, *torch.autograd.grad(out.sin().sum(), [x, *attention.parameters()])])
    for ours, right in zip(*results, strict=True):
        assert_close(ours, right, **EXACT)


def test_more_landmarks_come_nearer_to_softmax():
    x = draw(2, 64, WIDTH).cumsum(1) / 4  # neighbours are alike, as landmarks suppose
    softmax = SoftmaxAttention(WIDTH, HEADS, dtype=torch.float64)
    errors = []
    for landmarks in (2, 8, 32):
        layer = make(landmarks=landmarks, iterations=12, residual_width=None)
        softmax.load_state_dict(layer.state_dict())
        errors.append((layer(x)[0] - softmax(x)[0]).norm().item())
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("width", [1, 3, 33])
def test_convolution_in_blocks_is_torchs(length, width):
    v, kernel = draw(2, HEADS, length, 4).requires_grad_(), draw(HEADS, width).requires_grad_()
    out = convolve(v, kernel, None)
    truth = nn.functional.conv2d(v, kernel[:, None, :, None], padding=(width // 2, 0), groups=HEADS)
    assert_close(out, truth, **EXACT)
    g = draw(*v.shape, seed=2)
    for ours, right in zip(
        torch.autograd.grad(out, [v, kernel], g),
        torch.autograd.grad(truth, [v, kernel], g),
        strict=True,
    ):
        assert_close(ours, right, **EXACT)


@pytest.mark.parametrize("padded", [False, True])
def test_autocast(padded):
    layer, x = make(landmarks=4, residual_width=3, dtype=torch.float32), draw(BATCH, 23, WIDTH)
    ignore = holes(23) if padded else None
    exact, _ = layer(x.float(), key_padding_mask=ignore)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = layer(x.float(), key_padding_mask=ignore)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), exact, rtol=0.1, atol=0.05 * exact.abs().max().item())


def test_wrong_options():
    for options, message in [
        ({"landmarks": 0}, "landmarks is 0; expected an integer of at least 1"),
        ({"iterations": 0}, "iterations is 0"),
        ({"residual_width": 4}, "residual_width is 4; expected an odd number or None"),
        ({"residual_width": -1}, "residual_width is -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            NystromAttention(WIDTH, HEADS, **options)
