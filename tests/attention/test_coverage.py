"""`coverage` against what autograd finds: which inputs reach the output of another position."""

import pytest
import torch

from primal_attention import PrimalAttention, attention_info, available_attentions, make_attention
from primal_attention.attention.primal.rotary import RotaryPrimalAttention
from primal_attention.theory import Elu

LENGTHS = [1, 2, 17]
PRIMAL = {
    "sample": {"weights": "data", "anchors": 6},
    "sample, one": {"weights": "data", "anchors": 1},
    "paper": {"weights": "data", "anchors": 6, "anchor_rule": "paper"},
    "mean": {"weights": "data", "anchors": 6, "anchor_rule": "mean"},
    "mean, many": {"weights": "data", "anchors": 50, "anchor_rule": "mean"},
    "free": {"weights": "free"},
    "free, causal": {"weights": "free", "causal": True},
    "tied": {"weights": "tied"},
    "tied, causal": {"weights": "tied", "causal": True},
    "tied, elu": {"weights": "tied", "feature_map": "elu"},
    "free, elu, causal": {"weights": "free", "feature_map": "elu", "causal": True},
}


def reaching(layer, length, draws=1):
    """The number of positions whose input moves the output of another position, in any draw."""
    generator = torch.Generator().manual_seed(0)
    found = torch.zeros(length, dtype=torch.bool)
    for _ in range(draws):
        x = torch.randn(1, length, layer.embed_dim, generator=generator, dtype=torch.float64)
        x.requires_grad_()
        out = layer(x)[0][0] @ torch.randn(layer.embed_dim, generator=generator, dtype=x.dtype)
        for i in range(length):
            (slope,) = torch.autograd.grad(out[i], x, retain_graph=True)
            moved = (slope[0] != 0).any(-1)
            moved[i] = False
            found |= moved
    return int(found.sum())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", PRIMAL)
def test_primal(kind, length):
    torch.manual_seed(0)
    layer = PrimalAttention(8, 2, rank=2, dtype=torch.float64, **PRIMAL[kind])
    assert layer.coverage(length) == reaching(layer, length)


def test_normalised_features_reach_others_through_the_normaliser():
    """Free weights alone mix nothing; Remark 4.1's D is a sum over all positions."""
    layer = PrimalAttention(8, 2, rank=2, weights="free", feature_map="elu", dtype=torch.float64)
    assert layer.coverage(7) == reaching(layer, 7) == 7
    sampled = PrimalAttention(
        8, 2, rank=2, weights="data", anchors=2, feature_map="elu", dtype=torch.float64
    )
    assert sampled.coverage(7) == reaching(sampled, 7) == 7


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", sorted(set(available_attentions()) - {"primal"}))
@pytest.mark.parametrize("causal", [False, True])
def test_every_mechanism(name, causal, length):
    info = attention_info(name)
    options = {"dtype": torch.float64}
    if causal:
        if not info.causal:
            pytest.skip("it has no causal form")
        options["causal"] = True
    if "max_length" in info.options:
        options["max_length"] = max(LENGTHS)
    torch.manual_seed(0)
    layer = make_attention(name, 8, 2, **options).eval()
    # features may be zero, and buckets part positions, in one draw
    assert layer.coverage(length) == reaching(layer, length, draws=4)


def test_rotary():
    layer = RotaryPrimalAttention(8, 2, 4, rank=2, weights="tied", dtype=torch.float64)
    assert layer.coverage(7) == reaching(layer, 7) == 6


def test_what_the_paper_samples_does_not_grow_with_the_length():
    layer = PrimalAttention(64, 2, rank=20, weights="data")
    assert [layer.coverage(n) for n in (100, 1_024, 16_384)] == [100, 200, 200]
    sharp = PrimalAttention(64, 2, weights="tied", feature_map=Elu(32, 2))
    assert sharp.coverage(16_384) == 16_384


def test_bad_length():
    with pytest.raises(ValueError, match="length is 0; expected an integer of at least 1"):
        PrimalAttention(8, 2, weights="free").coverage(0)
    with pytest.raises(ValueError, match="length is 0; expected an integer of at least 1"):
        make_attention("none", 8, 2).coverage(0)
