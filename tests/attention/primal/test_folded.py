"""Folded layers: the same numbers from fewer products."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention import PrimalAttention, fold_, ksvd_loss
from primal_attention.attention.primal import FoldedPrimalAttention

from ...pairs import pairwise

EXACT = {"rtol": 1e-10, "atol": 1e-11}
FREE = ["free", "free-causal"]


@pytest.fixture
def both(make_layer):
    """A layer in eval mode and its folded copy."""

    def make(kind, **options):
        layer = make_layer(kind, **options).eval()
        return layer, fold_(copy.deepcopy(layer))

    return make


@pairwise(
    kind__fast__grad=[*product(FREE, (True, False), (True, False))],
    rank=[1, 2, 3, 4, 9],
    feature_map=["cosine", "exp", "elu"],
    bias=[True, False],
)
def test_folded_is_unfolded(kind, rank, feature_map, bias, fast, grad, both, make_rows, make_mask):
    layer, folded = both(kind, rank=rank, feature_map=feature_map, bias=bias)
    folded.fast = fast
    x, ignore = make_rows(3, 7, 6), make_mask(3, 7)
    with torch.set_grad_enabled(grad):
        for mask in (None, ignore):
            x = x.detach().requires_grad_(grad)
            expected, found = (a(x, key_padding_mask=mask)[0] for a in (layer, folded))
            assert_close(found, expected, **EXACT)
            if grad:  # saliency of a deployed model
                one, two = (torch.autograd.grad(o.square().sum(), x)[0] for o in (expected, found))
                assert_close(two, one, **EXACT)
        junk = x.detach().masked_fill(ignore.unsqueeze(-1), torch.nan)
        assert_close(folded(junk, key_padding_mask=ignore)[0], expected, **EXACT)


def test_both_forms_are_met(both):
    """s (p + d) < p d keeps the scores: here 9 s < 18."""
    assert [both("free", rank=rank)[1].folded for rank in (1, 2, 3, 9)] == [
        "scores", "features", "features", "features",
    ]  # fmt: skip


@pytest.mark.parametrize("rank", [1, 9])
def test_in_tiles(rank, both, make_rows, make_mask, monkeypatch):
    layer, folded = both("free", rank=rank)
    x, ignore = make_rows(3, 7, 6), make_mask(3, 7)
    expected = layer(x, key_padding_mask=ignore)[0]
    for size in (1, 60, 100, 200):
        monkeypatch.setattr("primal_attention.kernels.tiles.TILE", size)
        with torch.no_grad():
            assert_close(folded(x, key_padding_mask=ignore)[0], expected, **EXACT)


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("rank", [1, 9])
def test_cross_attention_and_weights(rank, feature_map, both, make_rows, make_mask):
    layer, folded = both("free", rank=rank, feature_map=feature_map)
    x, y, ignore = make_rows(2, 7, 6), make_rows(2, 4, 6, seed=3), make_mask(2, 4)
    call = {"key_padding_mask": ignore, "need_weights": True}
    for a, b in zip(layer(x, y, **call), folded(x, y, **call), strict=True):
        assert_close(b, a, **EXACT)
    assert_close(folded.factors(x).dense(), layer.factors(x).dense(), **EXACT)


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("rank", [1, 9])
def test_streaming(rank, feature_map, both, make_rows):
    layer, folded = both("free-causal", rank=rank, feature_map=feature_map)
    x = make_rows(2, 9, 6)
    expected, _ = layer(x)
    out, state = folded.prefill(x[:, :5])
    assert_close(out, expected[:, :5], **EXACT)
    for t in range(5, 9):
        out, state = folded.step(x[:, t], state)
        assert_close(out, expected[:, t], **EXACT)


def test_original_stays_as_it_was(both, make_rows):
    layer, folded = both("free")
    assert type(layer) is PrimalAttention
    assert type(folded) is FoldedPrimalAttention
    layer.train()(make_rows(1, 4, 6))
    ksvd_loss(layer).backward()
    assert layer.w_e.grad.abs().max() > 0
    with torch.no_grad():  # no storage is shared
        before = folded(make_rows(1, 4, 6))[0]
        for parameter in layer.parameters():
            parameter.zero_()
        assert torch.equal(folded(make_rows(1, 4, 6))[0], before)


def test_a_copy_of_a_folded_layer(both, make_rows):
    layer, folded = both("free")
    again = copy.deepcopy(folded)
    x = make_rows(1, 4, 6)
    assert_close(again(x)[0], layer(x)[0], **EXACT)


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("rank", [1, 9])
def test_state_dict_round_trip(rank, feature_map, both, make_layer, make_rows):
    layer, folded = both("free", rank=rank, feature_map=feature_map)
    saved = folded.state_dict()
    assert not {"w_e", "w_r", "sqrt_lambda"} & saved.keys()
    other = fold_(make_layer("free", rank=rank, feature_map=feature_map, seed=99).eval())
    x = make_rows(2, 5, 6)
    assert not torch.allclose(other(x)[0], layer(x)[0])
    other.load_state_dict(saved)
    assert_close(other(x)[0], layer(x)[0], **EXACT)
    with pytest.raises(RuntimeError, match="folded_w_out"):
        layer.load_state_dict(saved)


def test_folds_all_free_layers_of_a_model(make_layer, make_rows):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = make_layer("free"), make_layer("tied")
            self.third = make_layer("free", seed=5)

        def forward(self, x):
            for layer in (self.first, self.second, self.third):
                x = x + layer(x)[0]
            return x

    model = Two().eval()
    x = make_rows(2, 5, 6)
    expected = model(x)
    assert fold_(model) is model
    assert model.first.folded == "features"
    assert not isinstance(model.second, FoldedPrimalAttention)
    assert isinstance(model.third, FoldedPrimalAttention)
    assert_close(model(x), expected, **EXACT)
    assert not any(p.requires_grad for p in model.first.parameters())
    assert "folded" in repr(model.first)


def test_nothing_to_fold(make_layer):
    with pytest.raises(ValueError, match=r'weights="free", found: none'):
        fold_(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="found: data, tied"):
        fold_(nn.ModuleList([make_layer("tied"), make_layer("data-sample")]))
    folded = fold_(make_layer("free"))
    with pytest.raises(ValueError, match="no layer to fold"):
        fold_(folded)


def test_no_training_of_a_folded_layer(make_layer, make_rows):
    folded = fold_(make_layer("free").train())
    with pytest.raises(RuntimeError, match=r"inference only; expected model\.eval\(\)"):
        folded(make_rows(1, 3, 6))
    assert isinstance(folded, PrimalAttention)
    assert torch.isfinite(folded.eval()(make_rows(1, 3, 6))[0]).all()
    streaming = fold_(make_layer("free-causal", dropout=0.5).train())
    with pytest.raises(RuntimeError, match=r"inference only; expected model\.eval\(\)"):
        streaming.prefill(make_rows(1, 3, 6))


def test_the_object_stays(make_layer, make_rows):
    """Hooks and references to a layer survive; a folded layer can also be made beside it."""
    layer, x, calls = make_layer("free").eval(), make_rows(1, 3, 6), []
    layer.register_forward_hook(lambda *_: calls.append(0))
    beside, expected = FoldedPrimalAttention(layer), layer(x)[0]
    assert type(layer) is PrimalAttention
    assert fold_(layer) is layer
    assert_close(layer(x)[0], expected, **EXACT)
    assert len(calls) == 2
    assert_close(beside(x)[0], expected, **EXACT)
    assert beside.in_proj_weight.data_ptr() != layer.in_proj_weight.data_ptr()


def test_other_types(both, make_rows):
    layer, folded = both("free", rank=9)
    x = make_rows(2, 5, 6)
    single = folded.float()(x.float())[0]
    assert single.dtype == torch.float32
    assert_close(single.double(), layer(x)[0], rtol=1e-4, atol=1e-4)


def test_what_happens_to_the_folded_layer_does_not_reach_the_original():
    layer = PrimalAttention(8, 2, weights="free", feature_map="elu").eval()
    FoldedPrimalAttention(layer).double().train()
    assert {p.dtype for p in layer.parameters()} == {torch.float32}
    assert not layer.feature_map.training
