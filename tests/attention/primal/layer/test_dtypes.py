"""Half precision, autocast and dropout."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from primal_attention import PrimalAttention, ksvd_loss
from primal_attention.kernels.native import library

from ....pairs import pairwise

KINDS = ["data-sample", "data-mean", "free", "tied", "free-causal", "tied-causal"]
HALF = [torch.float16, torch.bfloat16]
half = pytest.mark.parametrize("dtype", HALF, ids=str)
every_kind = pytest.mark.parametrize("kind", KINDS)
fast_and_plain = pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])


def assert_near(found, expected, *, ulps=6):
    """Within some units of the type's precision, of the largest entry."""
    assert torch.isfinite(found).all()
    size = expected.abs().max().item()
    tolerance = ulps * torch.finfo(found.dtype).eps * size
    assert_close(found.double(), expected.double(), rtol=0, atol=tolerance)


def step(layer, x, ignore=None):
    """Output, KSVD loss, and the gradients of the output's mean square and the loss together."""
    layer.zero_grad()
    layer.train()
    x = x.clone().requires_grad_()
    out, _ = layer(x, key_padding_mask=ignore)
    j = ksvd_loss(layer)
    (out.float().square().mean() + j).backward()
    grads = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
    return out.detach(), j.detach(), {"input": x.grad, **grads}


# -- float16 and bfloat16 --------------------------------------------------------------------------


@half
@pytest.mark.parametrize("weights", ["data", "free", "tied"])
def test_built_in_half_precision(weights, dtype):
    layer = PrimalAttention(8, 2, rank=2, weights=weights, dtype=dtype)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    out, _ = layer(torch.ones(2, 5, 8, dtype=dtype))
    assert out.dtype == dtype
    assert torch.isfinite(out).all()


@pairwise(
    kind=KINDS, feature_map__fast=[*product(["cosine", "exp", "elu"], [True, False])], dtype=HALF
)
def test_near_float64(kind, feature_map, fast, dtype, make_layer, make_rows, make_mask):
    """The same rounded parameters and inputs, computed twice."""
    layer = make_layer(kind, feature_map=feature_map, dtype=dtype)
    layer.fast = fast
    wide = make_layer(kind, feature_map=feature_map)
    wide.load_state_dict(layer.state_dict())
    x, ignore = make_rows(2, 9, 6, dtype=dtype), make_mask(2, 9, keep=4)
    out, j, grads = step(layer, x, ignore)
    out64, j64, grads64 = step(wide, x.double(), ignore)
    assert out.dtype == dtype
    assert j.dtype == torch.float32
    assert_near(out, out64)
    assert_close(j.double(), j64, rtol=20 * torch.finfo(dtype).eps, atol=0)
    for name, gradient in grads.items():
        assert gradient.dtype == dtype
        assert_near(gradient, grads64[name], ulps=30)  # sums over positions cancel


@half
@fast_and_plain
@every_kind
def test_zero_rows(kind, fast, dtype, make_layer, make_rows):
    """The usual epsilon is zero in half precision; queries of zero rows have no direction."""
    layer = make_layer(kind, dtype=dtype)
    layer.fast = fast
    with torch.no_grad():
        layer.in_proj_bias.zero_()
    x = make_rows(2, 6, 6, dtype=dtype)
    x[0, 2:4] = 0
    x[1] = 0
    x[0, 1] *= 1e-2
    out, j, grads = step(layer, x)
    for name, tensor in {"output": out, "loss": j, **grads}.items():
        assert torch.isfinite(tensor).all(), name


@pairwise(kind=KINDS, fast__dtype=[*product([True, False], HALF)], size=[1e2, 1e3, 5e3])
def test_large_rows(kind, size, fast, dtype, make_layer, make_rows):
    """Whatever the result can hold must not overflow on the way."""
    layer = make_layer(kind, dtype=dtype)
    layer.fast = fast
    wide = make_layer(kind)
    wide.load_state_dict(layer.state_dict())
    x = make_rows(2, 6, 6, seed=3).mul(size).to(dtype)
    expected, _ = wide(x.double())
    assert expected.abs().max() < 6e4  # so float16 can hold it
    x.requires_grad_()
    out, _ = layer(x)
    assert_near(out, expected, ulps=10)
    assert torch.isfinite(ksvd_loss(layer))
    out.float().mean().backward()  # of ordinary size, unlike out
    assert torch.isfinite(x.grad).all()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


@half
@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in KINDS), ("data-mean", {"anchors": 1})],
    ids=[*KINDS, "data-mean-1"],
)
def test_long_sequences(kind, options, dtype, make_layer, make_rows):
    """Sums over positions leave the range (float16) or stall (bfloat16) unless taken wider."""
    layer = make_layer(kind, dtype=dtype, **options).eval()
    wide = make_layer(kind, **options).eval()
    wide.load_state_dict(layer.state_dict())
    x = (20.0 + make_rows(1, 4096, 6)).to(dtype)
    with torch.no_grad():
        assert_near(layer(x)[0], wide(x.double())[0], ulps=10)


@pytest.mark.parametrize("kernels", ["1", "0"], ids=["kernels", "without"])
@pytest.mark.parametrize("batch", [16, 1024])
@pytest.mark.parametrize("weights", ["data", "free", "tied"])
def test_large_batches(weights, batch, kernels, make_rows, monkeypatch):
    """The gradients of the weights are sums over samples: 0.6 % at every size of the batch."""
    monkeypatch.setenv(library.VARIABLE, kernels)
    torch.manual_seed(0)
    layer = PrimalAttention(16, 2, rank=4, weights=weights, dtype=torch.bfloat16)
    wide = PrimalAttention(16, 2, rank=4, weights=weights, dtype=torch.float64)
    wide.load_state_dict(layer.state_dict())
    x = make_rows(batch, 128, 16, dtype=torch.bfloat16)
    probe = make_rows(batch, 128, 16, seed=3, dtype=torch.bfloat16)
    for one in (layer, wide):
        given = x.to(one.out_proj.weight.dtype)
        (one(given)[0] * probe.to(given.dtype)).sum().backward()
    for name, parameter in layer.named_parameters():
        if name.endswith(("weight", "w_e", "w_r")):
            expected = wide.get_parameter(name).grad
            error = (parameter.grad.double() - expected).norm() / expected.norm()
            assert error < 6e-3, name


@half
@pytest.mark.parametrize("kind", ["free-causal", "tied-causal"])
def test_long_streams(kind, dtype, make_layer, make_rows):
    """A state in half precision would stop to take in tokens after some hundred."""
    layer = make_layer(kind, dtype=dtype).eval()
    wide = make_layer(kind).eval()
    wide.load_state_dict(layer.state_dict())
    x = make_rows(1, 1300, 6)
    x[:, :500] += 3.0  # the first part pulls one way, the rest must pull it back
    x[:, 500:] -= 3.0
    x = x.to(dtype)
    with torch.no_grad():
        expected = wide(x.double())[0]
        _, state = layer.prefill(x[:, :1200])
        for t in range(1200, 1300):
            out, state = layer.step(x[:, t], state)
        assert_near(out, expected[:, -1], ulps=10)


@half
@every_kind
def test_padding_invariance(kind, dtype, make_layer, make_rows, make_mask):
    layer = make_layer(kind, dtype=dtype).eval()
    x, ignore = make_rows(2, 9, 6, dtype=dtype), make_mask(2, 9, keep=3)
    x[ignore] = torch.nan
    out = layer(x, key_padding_mask=ignore)[0]
    for b in range(2):
        alone = layer(x[b : b + 1, ~ignore[b]])[0][0]
        assert_near(out[b, ~ignore[b]], alone)


# -- autocast --------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
@fast_and_plain
@every_kind
def test_autocast(kind, fast, given, make_layer, make_rows, make_mask):
    layer = make_layer(kind, dtype=torch.float32)
    layer.fast = fast
    x, ignore = make_rows(2, 9, 6, dtype=torch.float32), make_mask(2, 9, keep=4)
    x = x.bfloat16().to(given)
    expected_out, expected_j, expected = step(layer, x.float(), ignore)
    layer.zero_grad()
    x = x.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = layer(x, key_padding_mask=ignore)
        inside = ksvd_loss(layer)
    outside = ksvd_loss(layer)
    assert out.dtype == torch.bfloat16
    assert inside.dtype == outside.dtype == torch.float32
    assert_close(inside, outside)
    assert_near(out, expected_out)
    assert_close(inside, expected_j, rtol=0.1, atol=0)
    (out.float().square().mean() + inside).backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all()
        size = expected[name].abs().max().item()
        assert_close(parameter.grad, expected[name], rtol=0, atol=0.1 * size)
    assert x.grad.dtype == given


def test_autocast_sums_the_objective_in_float32(make_layer, make_rows):
    """4096 equal scores: a sum in bfloat16 would stall at 256."""
    layer = make_layer("free", dtype=torch.float32)
    x = make_rows(1, 1, 6, dtype=torch.float32).expand(1, 4096, 6)
    layer(x[:, :1])
    one = ksvd_loss(layer, positions="mean")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
    assert_close(ksvd_loss(layer, positions="mean"), one, rtol=0.1, atol=0)


@pytest.mark.parametrize("kind", ["free-causal", "tied-causal"])
def test_autocast_stream(kind, make_layer, make_rows):
    layer = make_layer(kind, dtype=torch.float32).eval()
    x = make_rows(2, 9, 6, dtype=torch.float32)
    expected, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        _, state = layer.prefill(x[:, :4])
        for t in range(4, 9):
            out, state = layer.step(x[:, t], state)
            assert out.dtype == torch.bfloat16
            assert_near(out, expected[:, t])


# -- dropout ---------------------------------------------------------------------------------------


@fast_and_plain
@every_kind
def test_dropout_only_in_training(kind, fast, make_layer, make_rows):
    layer, without = make_layer(kind, dropout=0.5), make_layer(kind)
    layer.fast = without.fast = fast
    x = make_rows(2, 9, 6)
    assert torch.equal(layer.eval()(x)[0], without.eval()(x)[0])
    first, second = (layer.train()(x)[0] for _ in range(2))
    assert not torch.allclose(first, second)
    torch.manual_seed(5)
    first, _ = layer(x)
    torch.manual_seed(5)
    assert torch.equal(layer(x)[0], first)


@fast_and_plain
@pytest.mark.parametrize("positions", ["mean", "sum"])
@every_kind
def test_objective_does_not_feel_dropout(kind, positions, fast, make_layer, make_rows, make_mask):
    layer, without = make_layer(kind, dropout=0.5), make_layer(kind)
    layer.fast = without.fast = fast
    x, ignore = make_rows(2, 9, 6), make_mask(2, 9)
    losses = []
    for one in (layer, without):
        one.train()(x, key_padding_mask=ignore)
        losses.append(ksvd_loss(one, positions=positions))
    assert_close(losses[0], losses[1], rtol=1e-12, atol=0)
    for loss in losses:
        loss.backward()
    for name in ("in_proj_weight", "sqrt_lambda"):
        assert_close(
            layer.get_parameter(name).grad, without.get_parameter(name).grad, rtol=1e-9, atol=1e-12
        )


@every_kind
def test_dropout_keeps_the_mean_and_both_paths_its_spread(kind, make_layer, make_rows):
    """Many draws at once: one sequence, many times in a batch."""
    draws = 4000
    layer = make_layer(kind, dropout=0.3)
    x = make_rows(1, 4, 6)
    expected = layer.eval()(x)[0][0]
    spread = []
    torch.manual_seed(0)
    for fast in (True, False):
        layer.fast = fast
        with torch.no_grad():
            out = layer.train()(x.expand(draws, -1, -1))[0]
        std = out.std(0)
        assert std.min() > 1e-3
        error = (out.mean(0) - expected).abs() / (std / draws**0.5)
        assert error.max() < 5  # 24 numbers: 5 sigma is one in 70,000
        spread.append(std)
    assert_close(spread[0], spread[1], rtol=0.12, atol=0)


@fast_and_plain
@pytest.mark.parametrize("kind", ["data-sample", "free", "tied", "tied-causal"])
def test_dropout_acts_on_single_scores(kind, fast, make_layer, make_rows):
    """With W_c and the output projection as identities the dropped scores can be seen."""
    layer = make_layer(kind, 8, 2, rank=2, dropout=0.25)
    layer.fast = fast
    with torch.no_grad():
        for linear in (layer.concat, layer.out_proj):
            linear.weight.copy_(torch.eye(len(linear.weight)))
            linear.bias.zero_()
    x = make_rows(20, 50, 8)
    scores = layer.eval()(x)[0]
    torch.manual_seed(0)
    out = layer.train()(x)[0]
    kept = out != 0
    assert_close(out[kept], scores[kept] / 0.75, rtol=1e-10, atol=1e-12)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    by_score = kept.double().mean((0, 1))
    assert (by_score - 0.75).abs().max() < 0.08  # every direction of every head
