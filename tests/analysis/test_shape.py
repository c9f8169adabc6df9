"""Depth and width for a number of parameters: the published law, and models that are built."""

import json
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import primal_attention as pa
from primal_attention.analysis import shape_for
from primal_attention.analysis.shape import law_depth, law_width, regime
from primal_attention.models.encoder import make_encoder
from primal_attention.models.packing import Packing


@pytest.mark.parametrize(
    ("parameters", "depth", "width"),
    [
        (1e6, 2.6, 178), (1e7, 10.7, 279), (1e8, 24.1, 588), (1e9, 40.2, 1439),
        (1.75e11, 80.5, 13459), (1e12, 94.7, 29657),
    ],
)  # fmt: skip
def test_the_published_law(parameters, depth, width):
    found = law_depth(parameters)
    assert round(found, 1) == depth
    assert round(law_width(found)) == width


def test_the_regimes_of_the_paper():
    """It found 6 layers worse than 12 above a width of about 215, 12 than 24 above 300, and 24 than
    48 above 585."""
    assert [round(law_width(depth)) for depth in (6, 12, 24)] == [215, 300, 585]
    for depth, width in ((6, 512), (12, 512), (24, 1024)):
        assert regime(depth, width) == "deeper pays"
    for depth, width in ((6, 128), (12, 128), (24, 256)):
        assert regime(depth, width) == "wider pays"
    assert regime(12, 300) == "balanced"


def test_more_parameters_are_never_less_deep_nor_less_wide():
    budgets = [int(1e5 * 1.7**i) for i in range(26)]
    found = [shape_for(budget) for budget in budgets]
    for one, other in pairwise(found):
        assert one.depth <= other.depth
        assert one.law_width < other.law_width
        assert one.parameters <= other.parameters
    for shape in found:
        assert 0.8 * shape.budget < shape.parameters <= shape.budget
        assert shape.regime == "balanced" or shape.budget < 1_000_000


def encoder(shape, **options):
    name, own = shape.attention, dict(options)
    if shape.rank is not None:
        own["rank"] = shape.rank
    return make_encoder(
        [name] * shape.depth, {name: own}, width=shape.width, heads=shape.heads,
        feedforward=4 * shape.width, activation=nn.GELU(), dropout=0.0, norm="pre", primal={},
        settings={"max_length": shape.length}, device="meta",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in pa.available_attentions()),
        ("primal", {"weights": "data", "anchors": 50}),
        ("primal", {"weights": "free"}),
        ("lka", {"deformable": True}),
    ],
    ids=str,
)
def test_parameters_are_those_of_built_models(name, options):
    shape = shape_for(400_000, attention=name, heads=4, rank=8, length=100, options=options)
    built = encoder(shape, **options)
    assert sum(p.numel() for p in built.parameters()) == shape.parameters
    assert (shape.rank == 8) == (name == "primal")


def test_flops_are_those_that_torch_counts():
    shape = shape_for(60_000, heads=2, length=30)
    x = torch.zeros(1, 30, shape.width, device="meta")
    with FlopCounterMode(display=False) as counter:
        encoder(shape)(x, Packing(1, 30))
    assert counter.get_total_flops() == shape.flops


def test_what_is_beyond_the_law_is_said():
    assert shape_for(10_000_000).extrapolated == ()
    assert shape_for(2_900_000).extrapolated == ("below 3M parameters",)
    assert shape_for(10**11, heads=64).extrapolated == ("76.0 layers, fitted on 6 to 48",)
    both = shape_for(10_000_000, attention="primal", classifier=True).extrapolated
    assert both == ("a classifier, fitted on language models", "primal, fitted on softmax")


def test_a_rank_that_is_a_bottleneck_is_said():
    narrow = shape_for(10_000_000, attention="primal", heads=8, rank=16)
    (warning,) = narrow.warnings
    assert "rank 16 in 8 heads gives out 256 numbers" in warning
    least = -(-narrow.width // 16)
    assert f"expected a rank of at least {least}" in warning
    assert shape_for(10_000_000, attention="primal", heads=8, rank=least).warnings == ()
    assert shape_for(10_000_000, rank=1).warnings == ()
    given = shape_for(10_000_000, attention="primal", options={"rank": 4})
    assert given.rank == 4
    assert given.warnings


def test_for_json():
    found = json.loads(json.dumps(shape_for(5_000_000).to_dict()))
    assert found["memory"] == 16 * found["parameters"]
    assert found["threshold"] == pytest.approx(4.8, abs=0.2)  # log_3 of the width


def test_too_few_parameters():
    with pytest.raises(ValueError, match="parameters is 100; expected at least 888: 1 x softmax"):
        shape_for(100)
