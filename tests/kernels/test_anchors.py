"""Where anchors stand by the rule "paper" on every path, and anchors that are learned."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention import PrimalAttention
from primal_attention.kernels.anchors import learned_anchors, sampled_count, sampled_positions

# lengths of the paper's sets, and anchors s * rank_multi
LENGTHS = [26, 62, 93, 144, 152, 315, 405, 896, 1152, 1751, 1024, 2048, 4096]
ANCHORS = [1, 2, 100, 150, 200, 300, 400]


def test_places_of_the_paper_are_those_of_the_published_code():
    for length in LENGTHS:
        for n in [*ANCHORS, length]:
            expected = torch.linspace(0, length - 1, n, dtype=torch.int64)
            found = sampled_positions(torch.tensor([length]), n, "paper")[0]
            assert torch.equal(found, expected), (length, n)
            assert sampled_count(length, n, "paper") == len(expected.unique())


def test_about_half_of_the_places_differ_from_rounded_ones():
    length = torch.tensor([1751])
    differ = sampled_positions(length, 300, "paper") != sampled_positions(length, 300)
    assert 0.4 < differ.float().mean() < 0.6


@pytest.mark.parametrize("anchors", [5, 30])  # fewer and more than positions
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_path_is_the_plain_one(anchors, dtype):
    torch.manual_seed(0)
    options = {"weights": "data", "anchors": anchors, "rank": 3, "dtype": dtype}
    layer = PrimalAttention(8, 2, anchor_rule="paper", **options)
    ignore = torch.zeros(2, 12, dtype=torch.bool)
    ignore[1, [0, 3, 4, 11]] = True
    for mask in (None, ignore):
        x = torch.randn(2, 12, 8, dtype=dtype)
        outputs, gradients = [], []
        for fast in (True, False):
            layer.fast = fast
            own = x.clone().requires_grad_()
            out = layer(own, key_padding_mask=mask)[0]
            outputs.append(out)
            gradients += torch.autograd.grad(out.square().sum(), [own, layer.w_e])
        torch.testing.assert_close(*outputs)
        torch.testing.assert_close(gradients[0], gradients[2])
        torch.testing.assert_close(gradients[1], gradients[3])


def learned_layer(**options):
    torch.manual_seed(0)
    return PrimalAttention(
        8, 2, rank=3, weights="data", anchors=5, anchor_rule="learned", **options
    ).eval()


def test_learned_anchors_by_hand():
    x, points = torch.randn(2, 6, 8).double(), torch.randn(5, 8).double()
    ignore = torch.zeros(2, 6, dtype=torch.bool)
    ignore[0, 4:] = True
    found = learned_anchors(x, ignore, points)
    for b, n in enumerate((4, 6)):
        weights = (points @ x[b, :n].T / 8**0.5).softmax(-1)
        assert_close(found[b], weights @ x[b, :n])
    nothing = learned_anchors(x, torch.ones_like(ignore), points)
    assert (nothing == 0).all()


def test_learned_anchors_have_no_order():
    layer, x = learned_layer(dtype=torch.float64), torch.randn(2, 7, 8).double()
    order = torch.randperm(7)
    assert_close(layer(x[:, order])[0], layer(x)[0][:, order], rtol=1e-9, atol=1e-9)
    assert layer.coverage(7) == 7


def test_learned_anchors_learn_on_every_path():
    layer, x = learned_layer(), torch.randn(2, 7, 8)
    out, _ = layer(x)
    out.square().sum().backward()
    fast = layer.anchor_points.grad.clone()
    layer.anchor_points.grad = None
    layer.fast = False
    plain, _ = layer(x)
    plain.square().sum().backward()
    assert_close(out, plain, rtol=1e-4, atol=1e-5)
    assert_close(fast, layer.anchor_points.grad, rtol=1e-3, atol=1e-4)
    assert fast.abs().sum() > 0
