"""The cost model: FLOPs as torch counts them, memory as autograd keeps it."""

import json

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import primal_attention as pa
from primal_attention.analysis import crossing, largest_length, layer_cost
from primal_attention.analysis.cost import costed_attentions
from primal_attention.attention import register, registry

D, H, S, B = 64, 4, 8, 2
SIZES = {"width": D, "heads": H, "rank": S, "batch_size": B}
KINDS = [
    *((name, {}) for name in costed_attentions() if name not in ("primal", "linformer")),
    *(("primal", {"weights": kind}) for kind in ("data", "free", "tied")),
    ("primal", {"weights": "data", "anchors": 5}),
    ("primal", {"weights": "free", "bias": False}),
    *(("primal", {"weights": kind, "feature_map": "exp"}) for kind in ("free", "tied")),
    *(("primal", {"weights": kind, "feature_map": "elu"}) for kind in ("data", "free", "tied")),
    ("primal", {"weights": "tied", "feature_map": "softmax"}),
    ("linear", {"feature_map": "elu"}),
    ("linformer", {"max_length": 800, "projection": 32}),
    ("linformer", {"max_length": 800, "projection": 32, "share_kv": True}),
    ("nystrom", {"landmarks": 16, "iterations": 3, "residual_width": None}),
    ("longformer", {"window": 32, "global_tokens": 2}),
    ("lka", {"deformable": True, "kernel": 3}),
    ("reformer", {"hashes": 2, "bucket_size": 16}),
    ("performer", {"features": 30}),
    ("soft", {"landmarks": 20}),
]


def layer_of(name, options):
    torch.manual_seed(0)
    rank = {"rank": S} if name == "primal" else {}
    return pa.make_attention(name, D, H, **rank, **options)


def in_place(_input, a, b, *_rest, **_options):
    return 2 * a[0] * a[1] * a[2] * b[2]


def counted(layer, length):
    # torch's counter knows baddbmm, but not the one that works in place
    mapping = {torch.ops.aten.baddbmm_: in_place}
    with (
        sdpa_kernel(SDPBackend.MATH),  # the CPU's fused kernel is not counted
        FlopCounterMode(display=False, custom_mapping=mapping) as counter,
    ):
        layer(torch.randn(B, length, D, requires_grad=True))
    return counter.get_total_flops()


def saved(layer, length):
    """The numbers that autograd keeps, without parameters and buffers."""
    own = {t.untyped_storage().data_ptr() for t in (*layer.parameters(), *layer.buffers())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = layer(torch.randn(B, length, D, requires_grad=True))
    del kept
    return sum(found.values())


def test_every_attention_of_the_package_has_a_formula():
    assert costed_attentions() == pa.available_attentions()


@pytest.mark.parametrize("length", [20, 300])
@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_flops_are_those_that_torch_counts(name, options, length):
    layer = layer_of(name, options)
    cost = layer_cost(name, length, options=options, **SIZES)
    # what other mechanisms compute beside their products may change in small things
    exact = name in ("softmax", "primal", "none")
    assert counted(layer, length) == pytest.approx(cost.flops, rel=1e-12 if exact else 0.05)
    assert sum(p.numel() for p in layer.parameters()) == cost.parameters


@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_training_keeps_what_is_predicted(name, options):
    layer = layer_of(name, options)
    tolerance = 0.1 if name in ("softmax", "primal", "none") else 0.4
    assert saved(layer, 600) == pytest.approx(layer.cost(600, B).kept, rel=tolerance)


def test_backward_costs_twice_the_forward():
    layer = layer_of("softmax", {})
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.randn(B, 100, D, requires_grad=True))[0].sum().backward()
    assert counter.get_total_flops() == layer_cost("softmax", 100, **SIZES).training_flops


def test_crossing_is_where_the_curves_cross():
    sizes = {"width": 512, "heads": 8, "rank": 32}
    for quantity in ("flops", "memory", "training_memory"):
        at = crossing("performer", quantity, **sizes)
        matrix = {} if quantity == "flops" else {"matrix": True}
        for length, cheaper in ((at, True), (at - 1, False)):
            own = getattr(layer_cost("performer", length, **sizes), quantity)
            rival = getattr(layer_cost("softmax", length, options=matrix, **sizes), quantity)
            assert (own < rival) == cheaper
    assert crossing("yoso", **sizes) is None
    assert crossing("none", **sizes) == 1
    # few positions are cheap for landmarks too, more are not, many are again
    at = crossing("soft", **sizes)
    assert at > 49
    assert layer_cost("soft", 1, **sizes).flops < layer_cost("softmax", 1, **sizes).flops
    assert layer_cost("soft", at - 1, **sizes).flops >= layer_cost("softmax", at - 1, **sizes).flops


def test_primal_wins_sooner_with_fewer_directions():
    ranks = [crossing("primal", width=512, heads=8, rank=rank) for rank in (8, 32, 96)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]


def test_the_largest_length_is_the_largest():
    sizes = {"width": 512, "heads": 8, "rank": 32}
    for training in (False, True):
        memory = 16 << 30
        length = largest_length("primal", memory, training=training, **sizes)
        field = "training_memory" if training else "memory"
        assert getattr(layer_cost("primal", length, **sizes), field) <= memory
        assert getattr(layer_cost("primal", length + 1, **sizes), field) > memory
    matrix = largest_length("softmax", 16 << 30, options={"matrix": True}, **sizes)
    fused = largest_length("softmax", 16 << 30, **sizes)
    assert matrix < 20_000 < fused
    assert largest_length("primal", 1000, **sizes) == 0


def test_half_precision_takes_half_the_memory():
    wide, half = (layer_cost("softmax", 64, dtype=t, **SIZES) for t in ("float32", "bfloat16"))
    assert wide.memory == 2 * half.memory
    assert wide.flops == half.flops
    assert json.loads(json.dumps(wide.to_dict()))["length"] == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": "sofmax"}, r"unknown attention 'sofmax' \(did you mean 'softmax'\?\)"),
        ({"length": 0}, "length is 0; expected at least 1"),
        ({"heads": 3}, "heads is 3; expected a divisor of width = 64"),
        ({"dtype": "float23"}, "dtype is 'float23'"),
    ],
)
def test_wrong_arguments(change, message):
    given = {"attention": "softmax", "length": 10, **SIZES} | change
    with pytest.raises(ValueError, match=message):
        layer_cost(given.pop("attention"), given.pop("length"), **given)
    with pytest.raises(ValueError, match="quantity is 'time'"):
        crossing("primal", "time", **SIZES)


@pytest.mark.parametrize(
    ("attention", "options", "message"),
    [
        (
            "primal",
            {"wieghts": "tied"},
            r"unknown option of the cost of primal 'wieghts' \(did you mean 'weights'\?\); "
            "expected one of anchor_rule, anchors, bias, feature_map, rank, rank_multi, weights",
        ),
        ("primal", {"weights": "bogus"}, "weights is 'bogus'; expected one of 'data', 'free'"),
        ("primal", {"anchors": 0}, "anchors is 0; expected an integer of at least 1"),
        ("softmax", {"matrx": True}, r"'matrx' \(did you mean 'matrix'\?\)"),
        ("softmax", {"matrix": "yes"}, "matrix is 'yes'; expected True or False"),
        ("nystrom", {"landmarks": [3]}, r"landmarks is \(3,\); expected an integer"),
        ("nystrom", {"landmarks": None}, "landmarks is None; expected an integer"),
        (
            "linear",
            {"features": 3},
            r"cost of linear 'features' \(did you mean 'feature_map'\?\); expected one of bias",
        ),
        ("linear", {"causal": True}, "option of the cost of linear 'causal'"),
    ],
)
def test_wrong_options(attention, options, message):
    for ask in (
        lambda: layer_cost(attention, 10, options=options, **SIZES),
        lambda: crossing(attention, options=options, **SIZES),
        lambda: largest_length(attention, 1 << 30, options=options, **SIZES),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


def test_an_attention_without_a_formula_says_so(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))

    @register("plain", paper="nobody, 2026", cost="O(N)")
    class Plain(torch.nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()

    assert "plain" not in costed_attentions()
    with pytest.raises(ValueError, match=r"attention 'plain' has no cost formula; expected one of"):
        layer_cost("plain", 10, **SIZES)


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    for name in costed_attentions():
        layer_cost(name, 11, width=24, heads=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_grid_has_one_length():
    own = {"width": 16, "heads": 2, "options": {"grid": [8, 8]}}
    assert layer_cost("lka", 64, **own).flops > 0
    assert largest_length("lka", 2**30, **own) == 64
    assert largest_length("lka", 1, **own) == 0
    assert crossing("lka", **own) in (64, None)
    with pytest.raises(ValueError, match=r"the length is 65; expected 8 \* 8, as the grid"):
        layer_cost("lka", 65, **own)


def test_coverage_is_the_layers():
    def found(name, length, **options):
        return layer_cost(name, length, width=64, heads=2, rank=20, options=options).coverage

    assert [found("primal", n, weights="data") for n in (100, 1_024, 16_384)] == [100, 200, 200]
    assert found("primal", 1_024, weights="data", anchor_rule="mean") == 1_024
    assert found("primal", 1_024, weights="free") == found("none", 1_024) == 0
    assert found("primal", 1_024, weights="tied") == found("softmax", 1_024) == 1_024
