"""Which attentions there are, and choosing among them."""

import re

import pytest
from torch import nn

from primal_attention.convert import convert_
from primal_attention.convert.sites import find_sites, select


def names(model, layers, **options):
    return [site.name for site in select(find_sites(model, **options), layers, model)]


LAYERS = [f"layers.{i}.self_attn" for i in range(3)]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("last", [2]),
        ("all", [0, 1, 2]),
        (0, [0]),
        (-1, [2]),
        (range(1, 3), [1, 2]),
        (range(-1, 1), [0, 2]),
        (slice(None, None, 2), [0, 2]),
        (r"layers\.[01]\.", [0, 1]),
        (re.compile(r"2\.self_attn$"), [2]),
        (lambda name, module: name.startswith("layers.1"), [1]),
        (lambda name, module: module.num_heads == 2, [0, 1, 2]),
    ],
)
def test_selection(encoder, layers, expected):
    assert names(encoder, layers) == [LAYERS[i] for i in expected]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (3, "index from -3 to 2"),
        (-4, "index from -3 to 2"),
        (range(2, 5), "indices from -3 to 2"),
        (range(0), "matches none of 3"),
        (slice(5, 9), "matches none of 3"),
        ("layers.2.self_atn", "nearest are layers.2.self_attn"),
        ("zzz", "the attentions are layers.0.self_attn, layers.1"),
        ("(", "regular expression"),
        (lambda name, module: False, "lambda.* matches none of 3"),
    ],
)
def test_what_matches_nothing_is_an_error(encoder, layers, message):
    with pytest.raises(ValueError, match=message):
        names(encoder, layers)


@pytest.mark.parametrize("layers", [None, True, 1.5, ["last"]])
def test_other_types_are_refused(encoder, layers):
    with pytest.raises(TypeError, match="expected"):
        names(encoder, layers)


def test_cross_attention_only_when_asked():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 24), 2)
    assert names(model, "all") == ["layers.0.self_attn", "layers.1.self_attn"]
    assert names(model, "all", cross=True)[1] == "layers.0.multihead_attn"


def test_no_attention_that_we_know():
    class OtherAttention(nn.Module):
        pass

    with pytest.raises(ValueError, match="no attention was found in Linear"):
        names(nn.Linear(2, 2), "last")
    with pytest.raises(ValueError, match="OtherAttention has no adapter and calls neither"):
        names(nn.Sequential(OtherAttention()), "last")


def test_a_bare_attention_cannot_be_replaced_in_place():
    with pytest.raises(ValueError, match="cannot be replaced in place"):
        names(nn.MultiheadAttention(16, 2), "last")


def test_a_shared_module_is_one_site():
    shared = nn.MultiheadAttention(16, 2)
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared])})
    (site,) = find_sites(model)
    assert site.names == ("a", "b.0")
    assert names(model, r"^b") == ["a"]


def test_a_converted_layer_keeps_its_place(encoder):
    convert_(encoder, layers=1, rank=4)
    assert [site.name for site in find_sites(encoder)] == LAYERS
    with pytest.raises(ValueError, match=r"layers.1.self_attn is converted already"):
        names(encoder, "all")
    assert names(encoder, "last") == LAYERS[2:]


@pytest.mark.parametrize("wrapper", [nn.DataParallel, nn.Sequential])
def test_wrapped_models(encoder, wrapper):
    if wrapper is nn.Sequential:
        assert names(wrapper(encoder), "last") == ["0.layers.2.self_attn"]
    else:
        with pytest.raises(ValueError, match=r"wrapped in DataParallel.*convert first"):
            names(wrapper(encoder), "last")
