"""SOFT against the matrix that its formula defines."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from primal_attention.attention import SoftAttention
from primal_attention.attention.soft import gaussian

from .draws import draw, holes, randomised

BATCH, WIDTH, HEADS = 4, 12, 3
EXACT = {"rtol": 1e-8, "atol": 1e-8}


def make(**options) -> SoftAttention:
    torch.manual_seed(1)
    layer = SoftAttention(WIDTH, HEADS, **({"dtype": torch.float64} | options))
    return randomised(layer)


def dense(layer: SoftAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Output (n, d) and matrices (h, n, n) of one sequence (n, d) without padding."""
    n, p = x.shape[0], layer.head_dim
    qv = x @ layer.in_proj_weight.T + layer.in_proj_bias
    q, v = (t.view(n, HEADS, p).transpose(0, 1) for t in qv.split(WIDTH, -1))

    def g(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a[:, :, None] - b[:, None]).square().sum(-1) / (2 * p**0.5))

    if n <= layer.landmarks:
        matrix = g(q, q)
    else:
        runs = np.array_split(np.arange(n), layer.landmarks)
        means = torch.stack([q[:, run].mean(1) for run in runs], 1)
        a = g(means, means)
        z = a / a.sum(-1).amax(-1).square()[:, None, None]
        for _ in range(layer.iterations):
            z = 2 * z - z @ a @ z
        matrix = g(q, means) @ z @ g(means, q)
    return layer.out_proj((matrix @ v).transpose(0, 1).flatten(1)), matrix


@pytest.mark.parametrize("length", [5, 16, 23])
@pytest.mark.parametrize("landmarks", [1, 4, 6, 30])
def test_is_the_matrix_of_its_formula(length, landmarks):
    layer = make(landmarks=landmarks)
    x, ignore = draw(BATCH, length, WIDTH), holes(length)
    leaves = [x.requires_grad_(), *layer.parameters()]
    rows = [dense(layer, x[i][~ignore[i]])[0] for i in range(BATCH)]
    truth = torch.zeros_like(x).masked_scatter(~ignore[..., None], torch.cat(rows))
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


def test_enough_landmarks_give_the_gaussian_kernel():
    layer, x = make(landmarks=9), draw(BATCH, 9, WIDTH)
    _, weights = layer(x, need_weights=True, average_attn_weights=False)
    assert_close(weights.diagonal(dim1=-2, dim2=-1), torch.ones(BATCH, HEADS, 9).double())
    assert_close(weights, weights.mT)
    assert (torch.linalg.eigvalsh(weights) > 0).all()


def test_more_landmarks_come_nearer_to_the_gaussian_kernel():
    x = draw(2, 64, WIDTH).cumsum(1) / 4  # neighbours are alike, as landmarks suppose
    full, _ = make(landmarks=64)(x)
    errors = [(make(landmarks=m, iterations=40)(x)[0] - full).norm().item() for m in (2, 8, 32)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_the_values_may_differ():
    layer, x, z = make(landmarks=4), draw(BATCH, 9, WIDTH), draw(BATCH, 9, WIDTH, seed=1)
    ignore = holes(9)
    out, weights = layer(x, x, z, ignore, need_weights=True, average_attn_weights=False)
    v = z @ layer.in_proj_weight[WIDTH:].T + layer.in_proj_bias[WIDTH:]
    heads = weights @ v.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    expected = layer.out_proj(heads.transpose(1, 2).flatten(2)).masked_fill(ignore[..., None], 0)
    assert_close(out, expected, **EXACT)


def test_queries_and_keys_have_one_projection():
    layer = SoftAttention(WIDTH, HEADS)
    assert layer.in_proj_weight.shape == (2 * WIDTH, WIDTH)
    assert layer.in_proj_bias.shape == (2 * WIDTH,)
    assert SoftAttention(WIDTH, HEADS, bias=False).in_proj_bias is None


def test_equal_rows_stay_finite_in_single_precision():
    """All landmarks are equal: the matrix to invert has rank one."""
    layer = make(landmarks=8, dtype=torch.float32)
    x = draw(2, 1, WIDTH).float().expand(2, 50, WIDTH).clone().requires_grad_()
    out, weights = layer(x, need_weights=True)
    assert_close(weights, torch.ones_like(weights), rtol=1e-2, atol=1e-2)
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [x, *layer.parameters()]))


@pytest.mark.parametrize("padded", [False, True])
def test_autocast(padded):
    layer, x = make(landmarks=4, dtype=torch.float32), draw(BATCH, 23, WIDTH).float()
    ignore = holes(23) if padded else None
    exact, _ = layer(x, key_padding_mask=ignore)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = layer(x, key_padding_mask=ignore)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), exact, rtol=0.1, atol=0.05 * exact.abs().max().item())


def test_wrong_options():
    for options in ({"landmarks": 0}, {"iterations": 0}):
        with pytest.raises(ValueError, match="is 0; expected an integer of at least 1"):
            SoftAttention(WIDTH, HEADS, **options)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_the_kernel_is_at_most_one(scale):
    """In single precision |a|^2 - 2 <a, b> + |b|^2 cancels to a negative number."""
    a = (scale * draw(3, 50, 8)).float().requires_grad_()
    kernel = gaussian(a, a)
    assert kernel.max() <= 1.0
    (slope,) = torch.autograd.grad(kernel.sum(), a)
    assert slope.isfinite().all()
