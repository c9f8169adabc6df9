"""Candidates by name: kinds, options, references."""

import pytest
import torch

from primal_attention import available_attentions
from primal_attention.bench import (
    Settings,
    default_candidates,
    parse_candidates,
    with_references,
)
from primal_attention.bench.candidates import EXTRAS, choose_candidates, parse_candidate

SMALL = Settings(width=16, heads=2, rank=4)


def test_names_kinds_and_options():
    plain, free, two, more = parse_candidates(
        "softmax,primal:free,primal:rank=7,anchor_rule=mean,primal:tied,rank=3,dropout=0.5"
    )
    assert (plain.text, plain.name, plain.options) == ("softmax", "softmax", ())
    assert dict(free.options) == {"weights": "free"}
    assert two.text == "primal:rank=7,anchor_rule=mean"
    assert dict(two.options) == {"rank": 7, "anchor_rule": "mean"}
    assert dict(more.options) == {"weights": "tied", "rank": 3, "dropout": 0.5}


def test_words_and_values():
    assert dict(parse_candidate("softmax:causal").options) == {"causal": True}
    assert dict(parse_candidate("softmax:bias=false").options) == {"bias": False}
    assert dict(parse_candidate("primal:anchors=none").options) == {"anchors": None}
    assert dict(parse_candidate("primal:mean").options) == {"anchor_rule": "mean"}
    lists = parse_candidates("lka:grid=[8,8],reach=3,softmax,lka:grid=[4, 16]")
    assert [dict(one.options) for one in lists] == [
        {"grid": (8, 8), "reach": 3}, {}, {"grid": (4, 16)},
    ]  # fmt: skip
    assert len(set(lists)) == 3


def test_one_attention_for_each_layer():
    plus, materialised = parse_candidates("softmax+primal:data,rank=3,softmax:materialised+linear")
    assert plus.text == "softmax+primal:data,rank=3"
    first, last = plus.layers(2)
    assert (first.name, last.name) == ("softmax", "primal")
    assert dict(last.options) == {"weights": "data", "rank": 3}
    assert materialised.layers(2)[0].is_extra
    (alone,) = parse_candidates("primal:tied,dropout=1e+0")  # a sign, not a layer
    assert alone.layers(2) == (alone, alone)
    with pytest.raises(ValueError, match=r"names the attentions of 2 layers; expected one att.* 3"):
        plus.layers(3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax+", "unknown attention ''"),
        ("softmax+primla", "did you mean 'primal'?"),
        ("sofmax", "did you mean 'softmax'?"),
        ("flor", "did you mean 'floor'?"),
        ("", "unknown attention ''"),
        ("softmax,,primal", "unknown attention ''"),
        ("primal:teid", "did you mean 'tied'?"),
        ("primal:rnk=3", "did you mean 'rank'?"),
        ("softmax:rank=3", "unknown option of attention 'softmax': 'rank'"),
        ("softmax:dtype=float32", "unknown option of attention 'softmax': 'dtype'"),
        ("floor:rank=3", "unknown attention 'floor'"),
        ("primal,softmax,primal", "expected each candidate once"),
    ],
)
def test_what_does_not_exist_is_named(text, expected):
    with pytest.raises(ValueError, match=r"expected") as error:
        parse_candidates(text)
    assert expected in str(error.value)


def test_all_attentions_are_there_in_all_kinds():
    texts = [candidate.text for candidate in default_candidates()]
    assert len(set(texts)) == len(texts)
    assert set(EXTRAS) <= set(texts)
    assert {text.partition(":")[0] for text in texts} == {*available_attentions(), "floor"}
    assert {"primal:data", "primal:free", "primal:tied"} <= set(texts)
    assert "primal" not in texts


def test_references_are_added_once():
    texts = [c.text for c in with_references(parse_candidates("primal,softmax"))]
    assert texts == ["floor", "primal", "softmax"]


def test_rank_goes_to_those_that_have_one_and_gives_way():
    assert parse_candidate("primal").build(SMALL, 100).rank == 4
    assert parse_candidate("primal:rank=6").build(SMALL, 100).rank == 6
    assert parse_candidate("softmax").build(SMALL, 100).embed_dim == 16


def test_primal_alone_is_the_usual_kind_and_data_has_no_more_anchors_than_positions():
    assert parse_candidate("primal").build(SMALL, 30).weights == "tied"
    assert parse_candidate("primal:data").build(SMALL, 30).anchors == 30


def test_the_dtype_is_that_of_the_settings():
    settings = Settings(width=16, dtype="float64")
    for text in ("floor", "softmax", "softmax:materialised", "primal"):
        layer = parse_candidate(text).build(settings, 30)
        assert {p.dtype for p in layer.parameters()} == {torch.float64}


def test_materialised_softmax_is_softmax():
    torch.manual_seed(0)
    fused = parse_candidate("softmax").build(SMALL, 9).double()
    formed = parse_candidate("softmax:materialised").build(SMALL, 9).double()
    formed.load_state_dict(fused.state_dict())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    torch.testing.assert_close(formed(x)[0], fused(x)[0])
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 5:] = True
    torch.testing.assert_close(
        formed(x, key_padding_mask=padding)[0], fused(x, key_padding_mask=padding)[0]
    )


def test_options_by_attention_go_to_those_that_do_not_set_them():
    options = {"performer": {"features": 8}, "primal": {"bias": False}}
    text = "softmax,performer,performer:features=64,softmax+primal:free,rank=3"
    found = choose_candidates(text, default_candidates, options)
    assert [one.text for one in found] == [
        "softmax", "performer:features=8", "performer:features=64",
        "softmax+primal:free,rank=3,bias=false",
    ]  # fmt: skip
    assert dict(found[3].parts[1].options) == {"weights": "free", "rank": 3, "bias": False}
    assert choose_candidates(None, default_candidates) == default_candidates()
    with pytest.raises(ValueError, match="the attention of an option is 'flow'; expected one of"):
        choose_candidates("softmax", default_candidates, {"flow": {}})
