"""Summaries of a context: sums, rows, and what they refuse."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention import PrimalAttention, make_attention

from .draws import draw

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make(name, **options):
    torch.manual_seed(0)
    return make_attention(name, 8, 2, dtype=torch.float64, **options).eval()


def test_the_size_of_a_tied_summary_is_that_of_the_formula():
    layer = make("primal", rank=3, feature_map="cosine")
    assert layer.summarise(draw(1, 70, 8)).numbers == 2 * 2 * 4 * 3 + 1  # 2 h m s + 1
    layer = make("primal", rank=3)  # a positive map: one more column
    kept = layer.summarise(draw(1, 70, 8))
    assert kept.numbers == 2 * 2 * 4 * 4 + 1
    assert kept.nbytes == 8 * kept.numbers


def test_later_rows_count_for_more_after_fading():
    """Two contexts, the first with half the weight, is the first once and the second twice."""
    layer, x = make("linear"), draw(1, 3, 8)
    first, second = draw(1, 4, 8, seed=1), draw(1, 5, 8, seed=2)
    faded = layer.summarise(first).faded(0.5) + layer.summarise(second)
    twice = torch.cat([first, second, second], 1)
    assert_close(layer.attend(x, faded), layer(x, twice)[0], **EXACT)
    with pytest.raises(ValueError, match="factor is 0; expected a number in"):
        faded.faded(0)


def test_keys_far_apart_are_summed_without_overflow():
    """The exponentials of one context are exp(800) times those of the other."""
    layer, x = make("performer", features=16), draw(1, 3, 8)
    small, large = draw(1, 4, 8, seed=1), 40 * draw(1, 4, 8, seed=2)
    joined = layer.summarise(small) + layer.summarise(large)
    assert_close(layer.attend(x, joined), layer(x, torch.cat([small, large], 1))[0], **EXACT)
    assert joined.log_scale.isfinite().all()


def test_other_summaries_are_refused():
    tied, softmax, x = make("primal"), make("softmax"), draw(2, 3, 8)
    kept = tied.summarise(x)
    with pytest.raises(TypeError, match="the summary is a KeptSums; expected a KeptRows"):
        softmax.attend(x, kept)
    with pytest.raises(TypeError, match="the summary is a KeptRows; expected a KeptSums"):
        tied.attend(x, softmax.summarise(x))
    with pytest.raises(ValueError, match="query has batch size 1; expected batch size 2"):
        tied.attend(x[:1], kept)
    with pytest.raises(ValueError, match="query has no batch; expected batch size 2"):
        tied.attend(x[0], kept)
    with pytest.raises(TypeError, match="summary is of type Tensor; expected a Summary"):
        tied.attend(x, x)
    with pytest.raises(ValueError, match="expected those of one layer"):
        _ = kept + make("primal", rank=1).summarise(x)
    with pytest.raises(TypeError, match="expected summaries of one layer"):
        _ = kept + softmax.summarise(x)


def test_precision_and_place_of_a_summary():
    layer = PrimalAttention(8, 2, dtype=torch.float32).eval()
    x, y = draw(1, 3, 8).float(), draw(1, 9, 8, seed=1).float()
    kept = layer.summarise(y)
    assert_close(layer.attend(x, kept), layer(x, y)[0], rtol=1e-4, atol=1e-5)
    assert kept.to(torch.float64).sums[0].dtype == torch.float64
    for weights in ("tied", "free"):  # free weights with cosine features keep the count alone
        own = PrimalAttention(8, 2, weights=weights).eval().summarise(y)
        moved = own.to("meta")
        assert {tensor.device.type for tensor in moved.tensors} == {"meta"}
        assert own.to(torch.float64).count.dtype == torch.long
    half = PrimalAttention(8, 2, dtype=torch.bfloat16).eval()
    assert half.summarise(y.bfloat16()).sums[0].dtype == torch.float32  # sums of many
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer.attend(x, layer.summarise(y))
    assert_close(out.float(), layer(x, y)[0], rtol=0.1, atol=0.05)


def test_dropout_is_that_of_the_layer():
    layer, x = make("primal", dropout=0.5), draw(1, 3, 8)
    kept = layer.summarise(x)
    assert torch.equal(layer.attend(x, kept), layer.attend(x, kept))
    layer.train()
    assert not torch.equal(layer.attend(x, kept), layer.attend(x, kept))
