"""A plan says what would change, and changes nothing."""

import copy

import pytest
import torch
from torch import nn

from primal_attention import PrimalAttention
from primal_attention.attention.softmax import softmax_flops
from primal_attention.convert import convert_, plan


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("weights", ["data", "free", "tied"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_parameters_are_those_of_the_converted_model(encoder, layers, weights):
    found = plan(encoder, layers, rank=4, weights=weights)
    before = count(encoder)
    convert_(encoder, found)
    change = sum(row.parameters_after - row.parameters for row in found.rows)
    assert count(encoder) - before == change
    assert [row.name for row in found.changes] == [
        name for name, m in encoder.named_modules() if hasattr(m, "conversion")
    ]


def test_nothing_is_changed(encoder):
    before = copy.deepcopy(encoder.state_dict())
    random = torch.get_rng_state()
    modules = dict(encoder.named_modules())
    text = str(plan(encoder, "all", rank=4))
    assert dict(encoder.named_modules()) == modules
    assert all(torch.equal(t, before[n]) for n, t in encoder.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert "CHANGES THE FUNCTION" in text
    assert "primal tied, rank 4" in text
    assert "3 of 3 change" in text


def test_by_default_every_position_is_seen(encoder):
    (row,) = plan(encoder).changes
    assert (row.settings["weights"], row.settings["feature_map"]) == ("tied", "elu")
    assert row.settings["rank"] == 4  # half the width of a head, since that is below 32
    assert row.settings["dropout"] == 0.1
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 24), 1)
    (row,) = plan(decoder).changes
    assert (row.settings["weights"], row.settings["causal"]) == ("tied", True)
    (row,) = plan(encoder, weights="data").changes
    assert row.settings["feature_map"] == "cosine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rnak": 4}, "did you mean 'rank'"),
        ({"rank": 0}, "rank is 0"),
        ({"weights": "tide"}, "weights is 'tide'"),
        ({"feature_map": "cosin"}, "did you mean 'cosine'"),
        ({"start": "cold"}, "start is 'cold'"),
        ({"causal": True, "weights": "data"}, "anchors would see ahead"),
        ({"length": 0}, "length is 0"),
        ({"dropout": 2.0}, r"layers.2.self_attn cannot be converted: dropout is 2.0"),
    ],
)
def test_wrong_options(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        plan(encoder, **options)


def test_a_rank_that_reduces_nothing_gets_a_note(encoder):
    note = "rank is not below the width of a head, 8: it reduces nothing"
    assert [plan(encoder, rank=rank).rows[-1].note for rank in (7, 8, 9)] == ["", note, note]
    assert note in str(plan(encoder, rank=8))
    assert plan(encoder, attention="linear").rows[-1].note == ""


def test_notes_tell_what_free_weights_do_not_do(encoder):
    assert plan(encoder, weights="free").rows[-1].note == "free weights mix no positions"
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 24), 1)
    own, cross = plan(decoder, "all", cross=True, weights="free").rows
    assert (own.note, cross.note) == ("", "free weights ignore the context")


def test_notes_tell_of_shared_modules_and_tied_weights(encoder):
    encoder.layers[0].self_attn.in_proj_weight = encoder.layers[2].self_attn.in_proj_weight
    assert "shared with layers.0.self_attn are copied" in plan(encoder).rows[-1].note
    model = nn.ModuleList([encoder.layers[1], encoder.layers[1]])
    assert "shared by 2 places" in plan(model).rows[0].note


def test_cost_is_quadratic_before_and_that_of_the_layer_after(encoder):
    by_length = {n: plan(encoder, rank=3, length=n).rows[-1] for n in (500, 1000)}
    for n, row in by_length.items():
        assert row.flops == 2 * n * 4 * 16 * 16 + 4 * n * n * 16
        core = PrimalAttention(16, 2, rank=3, weights=row.settings["weights"])
        assert row.flops_after == core.cost(n).flops
    converted = convert_(encoder, rank=3)
    assert plan(converted, 0, length=500).rows[-1].flops == by_length[500].flops_after


def test_cost_of_grouped_heads():
    assert softmax_flops(7, 16, 16) == 7 * 8 * 16 * 16 + 4 * 7 * 7 * 16
    # W_k and W_v have a quarter of the rows
    assert softmax_flops(7, 10, 16, 4) == 2 * 7 * 10 * (16 + 16 + 4 + 4) + 4 * 7 * 7 * 16


def test_a_plan_belongs_to_its_model(encoder):
    layer = nn.TransformerEncoderLayer(16, 2, 24)
    other = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    with pytest.raises(ValueError, match=r"MultiheadAttention at layers.2.self_attn, which this"):
        convert_(other, plan(encoder))
    with pytest.raises(ValueError, match="rank is given beside a plan"):
        convert_(encoder, plan(encoder), rank=3)
