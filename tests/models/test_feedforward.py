"""The hand-written passes against the plain ones."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention.kernels.random_bits import draw_dropped, keep_scale
from primal_attention.models import feedforward
from primal_attention.models.feedforward import FeedForward

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


@pytest.fixture(params=["gelu", "relu"])
def activation(request):
    return nn.GELU() if request.param == "gelu" else nn.ReLU()


@pytest.fixture(params=[0.0, 0.4], ids=["", "dropout"])
def dropout(request):
    return request.param


@pytest.fixture(params=[2**20, 16 * 5, 1], ids=["one tile", "tiles", "single rows"])
def tile(request, monkeypatch):
    monkeypatch.setattr(feedforward, "TILE", request.param)


@pytest.fixture
def part(activation, dropout):
    torch.manual_seed(0)
    return FeedForward(6, 16, activation=activation, dropout=dropout, dtype=torch.float64)


def plain(part, x):
    """The plain form, with the masks that the tiles of the quick one draw."""
    active = part.activation(part.expand(x)).flatten(0, -2)
    p = part.dropout.p if part.training else 0.0
    if p:
        cuts = feedforward._tiles(*active.shape)
        keep = [draw_dropped(active[cut].numel(), p).view_as(active[cut]) == 0 for cut in cuts]
        active = active * torch.cat([*keep, active.new_zeros(0, 16).bool()]) * keep_scale(p)
    return part.reduce(active).view(x.shape)


def results(function, part, x, seed=2):
    """Output and all gradients, with the dropout of a seed."""
    part.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(seed)
    out = function(x)
    generator = torch.Generator().manual_seed(4)
    out.backward(torch.randn(out.shape, generator=generator, dtype=out.dtype))
    return [out.detach(), x.grad, *(p.grad.clone() for p in part.parameters())]


@pytest.mark.usefixtures("tile")
def test_same_as_plain(part):
    for shape in [(13, 6), (2, 7, 6), (1, 6), (0, 6)]:
        x = torch.randn(shape, dtype=torch.float64)
        expected = results(lambda x: plain(part, x), part, x)
        assert_close(results(part, part, x), expected, **CLOSE)


@pytest.mark.usefixtures("tile")
def test_without_gradient(part):
    x = torch.randn(13, 6, dtype=torch.float64)
    for mode in (torch.no_grad, torch.inference_mode):
        for module in (part.train(), part.eval()):
            with mode():
                torch.manual_seed(1)
                out = module(x)
                torch.manual_seed(1)
                assert_close(out, plain(module, x), **CLOSE)


def test_the_passes_are_used(part, monkeypatch):
    def refuse(*args):
        raise AssertionError("plain")

    monkeypatch.setattr(part.expand, "forward", refuse)
    part(torch.randn(3, 6, dtype=torch.float64))


def test_frozen_parameters_and_inputs(part):
    x = torch.randn(5, 6, dtype=torch.float64)
    part.expand.requires_grad_(False)
    part(x).sum().backward()
    assert part.expand.weight.grad is None
    assert part.reduce.weight.grad is not None


def test_second_derivative(activation, dropout):
    torch.manual_seed(0)
    part = FeedForward(2, 3, activation=activation, dropout=dropout, dtype=torch.float64)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*part.named_parameters(), strict=True)

    def run(x, *parameters):
        for name, parameter in zip(names, parameters, strict=True):
            module, _, weight = name.partition(".")
            delattr(getattr(part, module), weight)
            setattr(getattr(part, module), weight, parameter)
        torch.manual_seed(1)
        return part(x)

    inputs = (x, *parameters)
    g = torch.randn(2, 2, dtype=torch.float64)
    first = torch.autograd.grad(run(*inputs), inputs, g)
    assert_close(torch.autograd.grad(run(*inputs), inputs, g, create_graph=True), first, **CLOSE)
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


def test_one_wide_tensor_is_kept():
    part = FeedForward(4, 64, activation=nn.GELU(), dropout=0.1)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        part(torch.randn(100, 4))
    assert sum(t.numel() == 100 * 64 for t in saved) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_dropped_is_exactly_zero(dtype, activation):
    """Also where the numbers before the activation are huge."""
    part = FeedForward(4, 64, activation=activation, dropout=0.5, dtype=dtype)
    nn.init.constant_(part.expand.weight, 1e6)
    nn.init.ones_(part.reduce.weight)
    nn.init.zeros_(part.reduce.bias)
    nn.init.zeros_(part.expand.bias)
    x = torch.ones(200, 4, dtype=dtype, requires_grad=True)
    out = part(x)
    kept = out[:, 0] / (2 * 4e6)
    assert_close(kept, kept.round(), rtol=0, atol=1e-3)
    assert 28 < kept.mean() < 36
    out[:, 0].sum().backward()
    assert_close(x.grad[:, 0] / 2e6, kept.detach())


@pytest.mark.parametrize(
    "activation", [nn.SiLU(), nn.GELU(approximate="tanh")], ids=["silu", "tanh"]
)
def test_another_activation(activation):
    part = FeedForward(6, 16, activation=activation, dropout=0.0)
    x = torch.randn(3, 6)
    assert_close(part(x), part.reduce(activation(part.expand(x))))


@pytest.mark.parametrize("way", ["hook", "pre-hook", "subclass", "bfloat16", "autocast", "vmap"])
def test_where_the_plain_form_serves(way):
    part = FeedForward(6, 16, activation=nn.GELU(), dropout=0.0)
    x = torch.randn(3, 6)
    calls = []
    if way == "hook":
        part.expand.register_forward_hook(lambda *_: calls.append(1))
    elif way == "pre-hook":
        part.activation.register_forward_pre_hook(lambda *_: calls.append(1))
    elif way == "subclass":

        class Loud(nn.Linear):
            def forward(self, x):
                calls.append(1)
                return super().forward(x)

        part.expand = Loud(6, 16)
    if way == "bfloat16":
        part, x = part.bfloat16(), x.bfloat16()
        assert part(x).dtype == torch.bfloat16
    elif way == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            assert part(x).dtype == torch.bfloat16
    elif way == "vmap":
        assert_close(torch.func.vmap(part)(x), part(x))
    else:
        out = part(x)
        assert calls
        assert_close(out, part.reduce(part.activation(part.expand(x))))


def test_a_copy_shares_nothing():
    part = FeedForward(6, 16, activation=nn.GELU(), dropout=0.0)
    other = copy.deepcopy(part)
    other(torch.randn(3, 6)).sum().backward()
    assert part.expand.weight.grad is None
