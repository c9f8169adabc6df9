"""Where the anchors stand by the rule "paper", and that every path takes them from there."""

import pytest
import torch

from primal_attention import PrimalAttention
from primal_attention.kernels.anchors import sampled_count, sampled_positions

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
