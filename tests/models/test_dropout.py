"""Our own dropout: the right probability, independent numbers, exact scale, torch's rules."""

import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention.kernels.random_bits import LEVELS, TILE, draw_mask, keep_scale
from primal_attention.models.dropout import Dropout

N = 2**20


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(11)


@pytest.fixture(scope="module", params=[0.1, 0.5, 0.9, 1e-3])
def drawn(request):
    torch.manual_seed(11)
    p = request.param
    return draw_mask(N, p), keep_scale(p), round(p * LEVELS) / LEVELS


def test_probability(drawn):
    keep, scale, p = drawn
    assert set(keep.unique().tolist()) == {0, 1}
    deviation = math.sqrt(p * (1 - p) / N)
    assert abs((keep == 0).double().mean().item() - p) < 5 * deviation
    assert scale == pytest.approx(1 / (1 - p), rel=1e-12)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8, TILE])
def test_numbers_do_not_know_each_other(drawn, lag):
    keep, _, p = drawn
    centred = keep.double() - (1 - p)
    products = centred[:-lag] * centred[lag:]
    assert abs(products.mean().item()) < 5 * p * (1 - p) / math.sqrt(len(products))


def test_every_quarter_of_a_word_is_uniform(drawn):
    keep, _, p = drawn
    deviation = math.sqrt(p * (1 - p) / (N // 4))
    for dropped in (keep.view(-1, 4) == 0).double().mean(0).tolist():
        assert abs(dropped - p) < 5 * deviation


def test_the_rounded_probability_is_the_one_that_scales():
    p = 0.4 / LEVELS  # rounds to none
    assert draw_mask(1000, p).all()
    assert keep_scale(p) == 1.0
    assert keep_scale(1 - 0.4 / LEVELS) == LEVELS  # rounds to all: one level is kept


@pytest.mark.parametrize("count", [0, 1, 3, 5, TILE - 1, TILE + 1, 2 * TILE + 3])
def test_any_count(count):
    keep = draw_mask(count, 0.5)
    assert keep.shape == (count,)
    if count > 100:
        assert 0.45 < keep[-50000:].double().mean() < 0.55


def test_the_seed_decides():
    dropout, x = Dropout(0.3), torch.randn(1000)
    first = dropout(x)
    assert not torch.equal(dropout(x), first)
    torch.manual_seed(11)
    x = torch.randn(1000)
    assert torch.equal(dropout(x), first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_kept_numbers_are_scaled(dtype):
    x = torch.randn(7, 40).to(dtype)
    out = Dropout(0.25)(x)
    assert out.dtype == dtype
    kept = out != 0
    assert 0 < kept.sum() < x.numel()
    assert_close(out[kept], (x / 0.75)[kept])


def test_gradient_has_the_same_mask():
    x = torch.ones(3, 50, dtype=torch.float64, requires_grad=True)
    out = Dropout(0.5)(x)
    g = torch.randn_like(out)
    (grad,) = torch.autograd.grad(out, x, g)
    assert torch.equal(grad, g * out.detach())


def test_residual():
    dropout = Dropout(0.5)
    x = torch.randn(3, 50, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(3, 50, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    total = dropout.add(residual, x)
    torch.manual_seed(3)
    expected = residual + dropout(x)
    assert_close(total, expected)
    g = torch.randn_like(total)
    found = torch.autograd.grad(total, [residual, x], g)
    assert_close(found, torch.autograd.grad(expected, [residual, x], g))


def test_residual_of_another_kind():
    """A wider type, or a shape to be expanded, as torch adds them."""
    dropout, x = Dropout(0.5), torch.randn(3, 50).bfloat16()
    assert dropout.add(torch.zeros(3, 50), x).dtype == torch.float32
    assert dropout.add(torch.zeros(50), x.float()).shape == (3, 50)


def test_second_derivative():
    dropout = Dropout(0.5)
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)

    def cubes(x, residual):
        torch.manual_seed(5)
        return dropout(x.square()) * x + dropout.add(residual, x.square()).square()

    assert torch.autograd.gradcheck(cubes, (x, residual))
    assert torch.autograd.gradgradcheck(cubes, (x, residual))


def test_other_layouts():
    x = torch.randn(40, 30).t()
    out = Dropout(0.5)(x)
    assert_close(out[out != 0], 2 * x[out != 0])
    assert_close(Dropout(0.5).add(x, torch.zeros(30, 40)), x)


def test_several_tiles():
    x = torch.arange(1.0, 2.0 * TILE)
    out = Dropout(0.5)(x)
    assert_close(out[out != 0], 2 * x[out != 0])
    total = Dropout(0.5).add(x, -x / 2)  # 0 where kept
    assert torch.equal((total == 0) | (total == x), torch.ones_like(x, dtype=torch.bool))


@pytest.mark.parametrize("module", [Dropout(0.5).eval(), Dropout(0.0)], ids=["eval", "p = 0"])
def test_nothing_is_dropped(module):
    x = torch.randn(3, 4)
    assert module(x) is x
    assert torch.equal(module.add(x, x), 2 * x)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0, float("nan")])
def test_refused(p):
    with pytest.raises(ValueError, match=r"dropout is .*; expected a number in \[0, 1\)"):
        Dropout(p)


def test_under_a_function_transform():
    out = torch.func.vmap(Dropout(0.5), randomness="different")(torch.ones(4, 100))
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(out[0], out[1])


def test_another_default_device():
    with torch.device("meta"):
        keep = draw_mask(10, 0.5)
    assert keep.device.type == "cpu"
