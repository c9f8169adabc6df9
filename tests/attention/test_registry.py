"""Attentions by name."""

import inspect
import re

import pytest
import torch

from primal_attention import (
    PrimalAttention,
    SoftmaxAttention,
    attention_info,
    available_attentions,
    make_attention,
)
from primal_attention.attention import AttentionInfo, register, registry
from primal_attention.theory.features import Cosine, Elu

FACTS = {
    "paper": "nobody: nowhere",
    "cost": "O(1)",
    "causal": False,
    "cross": False,
    "streaming": False,
    "any_length": False,
}


@pytest.fixture
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


def test_names_are_sorted_and_known():
    names = available_attentions()
    assert {"primal", "softmax"} <= set(names)
    assert list(names) == sorted(set(names))


@pytest.mark.parametrize("name", available_attentions())
def test_facts(name):
    info = attention_info(name)
    assert info.name == name
    assert issubclass(info.build, torch.nn.Module)
    assert re.search(r"(19|20)\d\d", info.paper), "the paper's year"
    assert re.fullmatch(r"O\(.+\)", info.cost)
    for fact in (info.causal, info.cross, info.streaming, info.any_length):
        assert isinstance(fact, bool)
    # what a fact promises must exist
    assert info.causal == ("causal" in info.options)
    for method in ("init_state", "prefill", "step"):
        assert hasattr(info.build, method) == info.streaming
    assert getattr(info.build, "has_cross", info.cross) == info.cross
    assert (info.summary in ("constant", "linear")) == info.cross
    assert info.summary is None or hasattr(info.build, "summarise")


@pytest.mark.parametrize("name", available_attentions())
def test_one_calling_convention(name):
    """The arguments of nn.MultiheadAttention, in its order: torch passes some by position."""
    build = attention_info(name).build
    mine = inspect.signature(build.forward).parameters
    its = inspect.signature(torch.nn.MultiheadAttention.forward).parameters
    assert list(mine)[: len(its)] == list(its)
    assert all(p.kind is p.KEYWORD_ONLY for p in list(mine.values())[len(its) :])
    assert mine["need_weights"].default is False
    positional = [
        p.name for p in inspect.signature(build).parameters.values() if p.kind is not p.KEYWORD_ONLY
    ]
    assert positional == ["embed_dim", "num_heads"]
    assert {"batch_first", "device", "dtype"} <= set(attention_info(name).options)


def test_facts_of_softmax():
    info = attention_info("softmax")
    assert info.build is SoftmaxAttention
    assert "Vaswani" in info.paper
    assert info.cost == "O(N^2)"
    assert all((info.causal, info.cross, info.streaming, info.any_length))
    assert list(info.options) == ["causal", "bias", "dropout", "batch_first", "device", "dtype"]
    assert info.options["dropout"].default == 0.0


def test_facts_of_primal():
    info = attention_info("primal")
    assert info.build is PrimalAttention
    assert "Primal-Attention" in info.paper
    assert info.options["rank"].default is None
    assert info.options["weights"].default == "tied"
    maps = {"tied": Elu, "data": Cosine, "free": Cosine}
    for weights, kind in maps.items():  # unless one is named
        assert isinstance(make_attention("primal", 8, 2, weights=weights).feature_map, kind)
    assert isinstance(make_attention("primal", 8, 2).feature_map, Elu)


def test_options_reach_the_layer():
    layer = make_attention("primal", 8, 2, rank=3, weights="tied", causal=True)
    assert isinstance(layer, PrimalAttention)
    assert (layer.embed_dim, layer.num_heads, layer.rank) == (8, 2, 3)
    assert (layer.weights, layer.causal) == ("tied", True)
    layer = make_attention("softmax", 8, 4, dropout=0.25, bias=False)
    assert isinstance(layer, SoftmaxAttention)
    assert layer.dropout == 0.25
    assert layer.in_proj_bias is None


def test_an_unknown_name_suggests_the_near_one():
    for call in (attention_info, lambda name: make_attention(name, 8, 2)):
        with pytest.raises(ValueError, match=r"unknown attention 'sofmax' \(did you mean 'soft"):
            call("sofmax")
        with pytest.raises(ValueError, match=r"expected one of .*primal, .*softmax"):
            call("sofmax")


def test_a_name_near_to_nothing_gets_no_suggestion():
    with pytest.raises(ValueError, match=r"unknown attention 'xyzzy'; expected one of"):
        make_attention("xyzzy", 8, 2)


def test_an_unknown_option_suggests_the_near_one():
    with pytest.raises(ValueError, match=r"option of attention 'softmax': 'dropuot' \(did you m"):
        make_attention("softmax", 8, 2, dropuot=0.1)
    with pytest.raises(ValueError, match=r"did you mean 'rank'\?\); expected one of .*rank_multi"):
        make_attention("primal", 8, 2, ranks=3)


def test_a_missing_option_is_named():
    with pytest.raises(ValueError, match=r"attention 'linformer' expects the option 'max_length'"):
        make_attention("linformer", 8, 2)


@pytest.mark.usefixtures("own_registry")
def test_register_adds_and_returns_the_class():
    class Nothing(torch.nn.Module):
        def __init__(self, embed_dim, num_heads, *, depth, colour="blue"):
            super().__init__()
            self.got = (embed_dim, num_heads, depth, colour)

    assert register("nothing", **FACTS)(Nothing) is Nothing
    assert "nothing" in available_attentions()
    assert attention_info("nothing") == AttentionInfo(name="nothing", build=Nothing, **FACTS)
    assert make_attention("nothing", 8, 2, depth=1).got == (8, 2, 1, "blue")
    with pytest.raises(ValueError, match="expects the option 'depth'"):
        make_attention("nothing", 8, 2)


@pytest.mark.usefixtures("own_registry")
def test_facts_follow_from_the_class():
    def facts(build, **given):
        name = f"own{len(registry._registry)}"
        register(name, paper="nobody, 2026", cost="O(N)", **given)(build)
        info = attention_info(name)
        return info.causal, info.cross, info.streaming, info.any_length, info.pair_masks

    class Plain(torch.nn.Module):
        def __init__(self, embed_dim, num_heads, *, max_length):
            super().__init__()

    assert facts(Plain) == (False, False, False, False, False)
    assert facts(Plain, cross=True, pair_masks=True) == (False, True, False, False, True)
    assert facts(PrimalAttention) == (True, True, True, True, False)
    assert facts(SoftmaxAttention) == (True, True, True, True, True)


@pytest.mark.usefixtures("own_registry")
def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="attention 'softmax' is registered twice"):
        register("softmax", **FACTS)(torch.nn.Identity)
    assert attention_info("softmax").build is SoftmaxAttention


@pytest.mark.usefixtures("own_registry")
def test_a_forgotten_fact_is_an_error():
    with pytest.raises(TypeError, match="cost"):
        register("nothing", **{k: v for k, v in FACTS.items() if k != "cost"})(torch.nn.Identity)


def test_facts_cannot_be_changed():
    with pytest.raises(AttributeError):
        attention_info("softmax").cost = "O(1)"
