"""One layer has several forms of the same products, by size: all agree with the reference."""

import copy

import pytest
import torch
from torch.testing import assert_close

from primal_attention import fold_
from primal_attention.kernels import anchors, dispatch, tiles

from ....pairs import pairwise

EXACT = {"rtol": 1e-9, "atol": 1e-10}


@pairwise(
    n=[1, 4, 40, 350], length=[1, 2, 9, tiles.SHORT - 1, tiles.SHORT, 300], masked=[False, True]
)
def test_anchors_and_lengths(make_layer, make_rows, make_mask, run, n, length, masked):
    """Fewer and more anchors than positions; sequences below and above the short ones."""
    layer = make_layer("data-sample", anchors=n)
    x = make_rows(3, length, 6)
    ignore = make_mask(3, length) if masked and length > 1 else None
    if ignore is not None and length > 8:
        ignore[1] = True  # nothing valid at all
    fast, plain = run(layer, x, ignore=ignore), run(layer, x, ignore=ignore, fast=False)
    assert_close(fast, plain, **EXACT)


@pytest.mark.parametrize("kind", ["free", "tied"])
@pytest.mark.parametrize("length", [2, tiles.SHORT - 1, tiles.SHORT])
def test_short_sequences(make_layer, make_rows, make_mask, run, kind, length):
    layer, x, ignore = make_layer(kind), make_rows(4, length, 6), make_mask(4, length)
    assert_close(run(layer, x, ignore=ignore), run(layer, x, ignore=ignore, fast=False), **EXACT)


def test_many_anchors_take_the_summed_weights(make_layer, make_rows, monkeypatch):
    """The test above would pass without that form."""
    calls = []
    summed = anchors.spread_projections
    monkeypatch.setattr(
        anchors, "spread_projections", lambda *given: calls.append(0) or summed(*given)
    )
    layer = make_layer("data-sample", anchors=20)
    layer(make_rows(2, 19, 6))
    assert len(calls) == 1
    layer(make_rows(2, 20, 6))
    assert len(calls) == 1


def test_summed_weights_keep_their_digits(make_layer, make_rows):
    """Running sums of 100,000 anchors, one of them huge, cost no accuracy in float32."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(2, 1, 2, 100_000, generator=generator)
    w[..., 0] = 1e4
    x = make_rows(1, 50, 3, dtype=torch.float32)
    x[:, 0] = 0
    made = anchors.spread_projections(x, None, w)
    rows = anchors.anchor_rows(x.double(), None, 100_000, "sample")[1]
    assert_close(made.double(), anchors.anchor_projections(rows, w.double()), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "free-causal"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("batch", "length"), [(1, 400), (3, 50), (3, 400)])
def test_inference_folds_by_itself(
    make_layer, make_rows, make_mask, monkeypatch, kind, masked, batch, length
):
    layer = make_layer(kind, rank=6).eval()
    x = make_rows(batch, length, 6)
    ignore = make_mask(batch, length) if masked else None
    folded = []
    monkeypatch.setattr(dispatch, "DECODED", 0)  # causal ones have a pass of their own
    fold_weights = dispatch.fold_weights
    monkeypatch.setattr(
        dispatch, "fold_weights", lambda *given: folded.append(0) or fold_weights(*given)
    )
    with torch.no_grad():
        out = layer(x, key_padding_mask=ignore)[0]
        assert folded
        layer.fast = False
        assert_close(out, layer(x, key_padding_mask=ignore)[0], **EXACT)
    layer.fast = True
    assert_close(layer(x, key_padding_mask=ignore)[0].detach(), out, **EXACT)
    if "free" in kind:
        with torch.no_grad():
            kept = fold_(copy.deepcopy(layer))(x, key_padding_mask=ignore)[0]
        assert_close(kept, out, **EXACT)


def test_folding_spares_the_objective_and_dropout(make_layer, make_rows):
    """In training mode under no_grad neither may be skipped."""
    layer = make_layer("free", rank=6, dropout=0.5).train()
    x = make_rows(1, 400, 6)
    with torch.no_grad():
        first, second = layer(x)[0], layer(x)[0]
    assert not torch.equal(first, second)
