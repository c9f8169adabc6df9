"""Derivatives against finite differences, to all parameters and inputs at once.

test_reference.py compares the same derivatives with those of the equations written out, to the last
digits and with every feature map; so most of the checks here are slow.
"""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck as full_gradcheck
from torch.autograd import gradgradcheck

from primal_attention import ksvd_loss

SELF = ["data-sample", "data-mean", "free", "tied", "free-causal", "tied-causal"]
CROSS = ["data-sample", "data-mean", "free", "tied"]
OTHERS = [(True, False), (False, True), (False, False)]


def gradcheck(call, inputs):
    """Along one random direction: a fraction of the time, and a wrong entry still shows."""
    return full_gradcheck(call, inputs, fast_mode=True)


def function(layer, ignore, *, cross, positions="mean", seed=None):
    """Output and KSVD loss as a function of the input, the context and every parameter."""

    def call(x, y, *parameters):
        if seed is not None:
            torch.manual_seed(seed)
        out, _ = layer(x, y if cross else None, key_padding_mask=ignore)
        return out, ksvd_loss(layer, positions=positions)

    return call


def arguments(layer, make_rows, length=4, context=3):
    x, y = make_rows(2, length, 4), make_rows(2, context, 4, seed=7)
    return x.requires_grad_(), y.requires_grad_(), *layer.parameters()


def small(make_layer, kind, **options):
    if kind.startswith("data"):
        options["anchors"] = 3
    return make_layer(kind, 4, 2, seed=5, **options).train()


@pytest.mark.parametrize(
    ("fast", "masked"),
    [(True, True), *(pytest.param(*cell, marks=pytest.mark.slow) for cell in OTHERS)],
)
@pytest.mark.parametrize("kind", SELF)
def test_self_attention(kind, masked, fast, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind)
    layer.fast = fast
    ignore = make_mask(2, 4, keep=2) if masked else None
    assert gradcheck(function(layer, ignore, cross=False), arguments(layer, make_rows))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SELF)
def test_every_entry(kind, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind)
    call = function(layer, make_mask(2, 4, keep=2), cross=False)
    assert full_gradcheck(call, arguments(layer, make_rows))


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
@pytest.mark.parametrize("kind", CROSS)
def test_cross_attention(kind, masked, fast, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind)
    layer.fast = fast
    ignore = make_mask(2, 3) if masked else None
    assert gradcheck(function(layer, ignore, cross=True), arguments(layer, make_rows))


@pytest.mark.parametrize(
    ("kind", "cross"), [*((kind, False) for kind in SELF), *((kind, True) for kind in CROSS)]
)
@pytest.mark.parametrize("feature_map", ["exp", "elu"])
@pytest.mark.slow
def test_positive_features(kind, cross, feature_map, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind, feature_map=feature_map)
    ignore = make_mask(2, 3 if cross else 4)
    assert gradcheck(function(layer, ignore, cross=cross), arguments(layer, make_rows))


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("kind", SELF)
def test_dropout_with_a_fixed_draw(kind, fast, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind, dropout=0.4)
    layer.fast = fast
    call = function(layer, make_mask(2, 4), cross=False, seed=3)
    assert gradcheck(call, arguments(layer, make_rows))


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        *product(["data-sample", "tied"], [1, 3]),
        ("free", 3),
        ("free-causal", 1),
        ("free-causal", 4),
    ],
)
def test_in_tiles_with_dropout(kind, most, make_layer, make_rows, make_mask, monkeypatch):
    layer = small(make_layer, kind, dropout=0.3)
    channels = 2 * 4 + 2 * 2 * 2
    monkeypatch.setattr("primal_attention.kernels.tiles.TILE", most * channels)
    call = function(layer, make_mask(2, 4), cross=False, seed=3, positions="sum")
    assert gradcheck(call, arguments(layer, make_rows))


@pytest.mark.parametrize("kind", ["data-sample", "free", "tied"])
def test_one_position(kind, make_layer, make_rows):
    layer = small(make_layer, kind)
    assert gradcheck(function(layer, None, cross=False), arguments(layer, make_rows, length=1))


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["mean", "sum"])
@pytest.mark.parametrize("kind", SELF)
def test_loss_alone(kind, positions, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind)
    both = function(layer, make_mask(2, 4), cross=False, positions=positions)
    assert gradcheck(lambda *tensors: both(*tensors)[1], arguments(layer, make_rows))


@pytest.mark.parametrize("kind", ["free-causal", "tied-causal"])
@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
def test_through_a_state(kind, feature_map, make_layer, make_rows):
    """Truncated back-propagation needs the derivative of the state, too."""
    layer = small(make_layer, kind, feature_map=feature_map).eval()

    def call(x, y, *parameters):
        _, state = layer.prefill(x)
        out, state = layer.prefill(y, state=state)
        held = [t for t in (state.sums, state.key_sum) if t is not None]
        return out, *held

    assert gradcheck(call, arguments(layer, make_rows))


@pytest.mark.parametrize(
    ("kind", "feature_map"),
    [
        *((kind, "cosine") for kind in SELF),
        *(("tied", "exp"), ("free-causal", "exp"), ("data-sample", "elu"), ("tied-causal", "elu")),
    ],
)
def test_second_derivatives_of_the_plain_operations(
    kind, feature_map, make_layer, make_rows, make_mask
):
    layer = small(make_layer, kind, feature_map=feature_map)
    layer.fast = False
    call = function(layer, make_mask(2, 4), cross=False)
    assert gradgradcheck(call, arguments(layer, make_rows), fast_mode=True)


@pytest.mark.parametrize("kind", CROSS)
def test_second_derivatives_of_cross_attention(kind, make_layer, make_rows, make_mask):
    layer = small(make_layer, kind)
    layer.fast = False
    call = function(layer, make_mask(2, 3), cross=True)
    assert gradgradcheck(call, arguments(layer, make_rows), fast_mode=True)


@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "tied", "free-causal"])
def test_second_derivatives_of_the_fast_passes_raise(kind, make_layer, make_rows):
    """Never a silent zero."""
    layer = small(make_layer, kind)
    x = make_rows(2, 4, 4).requires_grad_()
    for power in (1, 2):  # the gradient of a sum is constant: nothing in it asks for a graph
        out, _ = layer(x)
        with pytest.raises(RuntimeError, match=r"set layer\.fast = False for second derivatives"):
            torch.autograd.grad(out.pow(power).sum(), x, create_graph=True)
