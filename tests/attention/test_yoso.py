"""YOSO-E against its formula, and against the hashing whose expectation it is."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention.attention import YosoAttention, yoso

from .draws import draw, holes, randomised

BATCH, LENGTH, WIDTH, HEADS = 4, 11, 12, 3
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make(**options) -> YosoAttention:
    torch.manual_seed(1)
    layer = YosoAttention(WIDTH, HEADS, **({"dtype": torch.float64} | options))
    return randomised(layer)


def dense(layer: YosoAttention, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Output (N, d) and matrices (h, N, M) of one call without padding."""
    q, k, v = (
        (t @ w.T + b).unflatten(-1, (HEADS, -1)).transpose(0, 1)
        for t, w, b in zip(
            (x, y, y), layer.in_proj_weight.split(WIDTH), layer.in_proj_bias.split(WIDTH),
            strict=True,
        )
    )  # fmt: skip
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    matrix = (1 - torch.acos(q @ k.mT) / math.pi) ** layer.tau
    heads = matrix @ v
    heads = heads / heads.norm(dim=-1, keepdim=True)
    return layer.out_proj(heads.transpose(0, 1).flatten(1)), matrix


@pytest.mark.parametrize("tau", [1, 2, 7, 9, 12])
@pytest.mark.parametrize("block", [1, 4, 100])
def test_is_the_matrix_of_its_formula(tau, block, monkeypatch):
    monkeypatch.setattr(yoso, "_block", lambda q, k: block)
    layer, ignore = make(tau=tau), holes(LENGTH)
    x = draw(BATCH, LENGTH, WIDTH).requires_grad_()
    leaves = [x, *layer.parameters()]
    rows = [dense(layer, *[x[i][~ignore[i]]] * 2)[0] for i in range(BATCH)]
    truth = torch.zeros_like(x).masked_scatter(~ignore[..., None], torch.cat(rows))
    out, weights = layer(x, key_padding_mask=ignore, need_weights=True, average_attn_weights=False)
    assert_close(out, truth, **EXACT)
    g = draw(*x.shape, seed=3)
    grads = [torch.autograd.grad(o, leaves, g, retain_graph=True) for o in (out, truth)]
    for ours, right in zip(*grads, strict=True):
        assert_close(ours, right, **EXACT)
    for i in range(BATCH):
        among = weights[i][:, ~ignore[i]]
        assert_close(among[:, :, ~ignore[i]], dense(layer, *[x[i][~ignore[i]]] * 2)[1], **EXACT)
        assert (weights[i][:, :, ignore[i]] == 0).all()


def test_cross_attention():
    layer, x, y = make(), draw(BATCH, 6, WIDTH), draw(BATCH, LENGTH, WIDTH, seed=1)
    ignore = holes(LENGTH)
    out, _ = layer(x, y, key_padding_mask=ignore)
    for i in range(BATCH):
        assert_close(out[i], dense(layer, x[i], y[i][~ignore[i]])[0], **EXACT)


def test_the_weights_are_collision_rates():
    """How often tau random hyperplanes put a query and a key into one bucket."""
    layer, x = make(tau=3), draw(1, 5, WIDTH)
    _, weights = layer(x, need_weights=True, average_attn_weights=False)
    q, k, _ = (x @ layer.in_proj_weight.T + layer.in_proj_bias).split(WIDTH, -1)
    draws = 40_000
    planes = draw(draws * layer.tau, layer.head_dim, seed=4)
    for head in range(HEADS):
        at = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        codes = [(t[0, :, at] @ planes.T > 0).view(5, draws, layer.tau) for t in (q, k)]
        rate = (codes[0][:, None] == codes[1][None]).all(-1).double().mean(-1)
        assert_close(rate, weights[0, head], rtol=0, atol=0.015)


def test_heads_have_unit_length():
    layer, x = make(), draw(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        layer.out_proj.weight.copy_(torch.eye(WIDTH))
        layer.out_proj.bias.zero_()
    lengths = layer(x)[0].unflatten(-1, (HEADS, -1)).norm(dim=-1)
    assert_close(lengths, torch.ones_like(lengths))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_and_opposite_directions_have_finite_gradients(dtype):
    """Angle 0 and pi, where the arc cosine has no derivative."""
    layer = make(dtype=dtype)
    with torch.no_grad():
        layer.in_proj_weight[WIDTH : 2 * WIDTH] = layer.in_proj_weight[:WIDTH]  # k = q
        layer.in_proj_bias.zero_()
    x = draw(1, 4, WIDTH).to(dtype)
    x = torch.cat([x, -x, x], 1).requires_grad_()
    out, weights = layer(x, need_weights=True)
    assert_close(weights[0].diagonal(), torch.ones(12, dtype=dtype), rtol=1e-2, atol=0)
    grads = torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()])
    assert all(g.isfinite().all() and g.abs().max() < 1e3 for g in grads)


def test_memory_is_linear(monkeypatch):
    """No block is larger than the bound, and all rows are there."""
    seen = []
    cosine = yoso._cosine

    def spy(q: Tensor, k: Tensor) -> Tensor:
        result = cosine(q, k)
        seen.append(result.numel())
        return result

    monkeypatch.setattr(yoso, "_cosine", spy)
    layer = YosoAttention(4, 2)
    layer(torch.randn(1, 1500, 4))[0].sum().backward()
    assert sum(seen) == 2 * 2 * 1500**2
    assert max(seen) <= 2**20


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast(kind):
    layer, x = make(dtype=torch.float32), draw(BATCH, LENGTH, WIDTH).float()
    exact, _ = layer(x, key_padding_mask=holes(LENGTH))
    with torch.autocast("cpu", kind):
        out, _ = layer(x, key_padding_mask=holes(LENGTH))
    assert out.dtype == kind
    assert_close(out.float(), exact, rtol=0.1, atol=0.05)
    assert F.cosine_similarity(out.float().flatten(), exact.flatten(), dim=0) > 0.999


def test_wrong_options():
    with pytest.raises(ValueError, match="tau is 0; expected an integer of at least 1"):
        YosoAttention(WIDTH, HEADS, tau=0)


def test_function_transforms_and_second_derivatives():
    layer = randomised(YosoAttention(8, 2, dtype=torch.float64))
    x = draw(2, 3, 4, 8)

    def run(rows: Tensor) -> Tensor:
        return layer(rows)[0]

    def loss(rows: Tensor) -> Tensor:
        return run(rows).square().sum()

    assert_close(torch.vmap(run)(x), torch.stack([run(rows) for rows in x]))
    rows = x[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(rows), rows, create_graph=True)
    assert_close(torch.func.grad(loss)(x[0]), gradient.detach())
    tangent = torch.ones_like(x[0])
    _, slope = torch.func.jvp(loss, (x[0],), (tangent,))
    assert_close(slope, gradient.detach().sum())
    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(loss(forward_ad.make_dual(x[0], tangent))).tangent
        assert_close(slope, gradient.detach().sum())
    (twice,) = torch.autograd.grad(gradient.sum(), rows)
    ahead, behind = (torch.func.grad(loss)(x[0] + step) for step in (1e-6, -1e-6))
    assert_close(twice, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-6)


def test_a_short_sum_has_a_gradient_in_float16():
    """The inverse of its length, times a scaled loss, is beyond the range of float16."""
    layer = YosoAttention(16, 2, tau=20)
    x = draw(1, 6, 16)
    gradients = []
    for dtype in (torch.float16, torch.float32):
        rows = x.to(dtype).requires_grad_()
        gradients += torch.autograd.grad(layer.to(dtype)(rows)[0].sum(), rows)
    half, exact = gradients
    assert_close(half.float(), exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
