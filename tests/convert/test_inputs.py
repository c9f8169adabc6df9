"""What a model cannot take is said before any work is done, and what it can is taken."""

import pytest
import torch

import primal_attention as pa
from primal_attention.convert import distill_
from primal_attention.convert.inputs import expect_inputs
from primal_attention.train.adapt import AdaptSettings

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"decision-transformer"}))
def test_every_architecture_takes_its_batch(name):
    model, batch = ARCHITECTURES[name]()
    model.train()
    expect_inputs(model, [batch])
    assert model.training


def refused():
    ids = torch.ones(2, 6, dtype=torch.long)
    yield {"ids": ids}, r"the batches have ids; expected input_ids, which BertForMaskedLM takes"
    yield {"input_ids": 1.5 * ids}, r"of batch . is of type torch.float32; expected integers"
    yield {"input_ids": ids[0]}, r"has shape \(6,\); expected \(samples, tokens\)"
    yield (
        {"input_ids": 1000 * ids},
        r"of batch . holds the token 1000; expected 0 to \d+, the words",
    )
    yield {"input_ids": -ids}, r"holds the token -1; expected 0 to"
    yield {"input_ids": ids.repeat(1, 100)}, r"has 600 positions; expected at most \d+, which"


WAYS = {
    "plan": lambda model, batches: pa.plan(model, batches=batches),
    "adapt_": lambda model, batches: pa.adapt_(model, batches[:1], held_out=batches),
    "distill_": lambda model, batches: distill_(pa.convert_(model), batches),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("batch", "said"), refused())
def test_tokens_that_a_model_does_not_know(way, batch, said):
    model, good = ARCHITECTURES["bert"]()
    names = list(model.state_dict())
    with pytest.raises(ValueError, match=said):
        WAYS[way](model, [good, batch])
    if way != "distill_":
        assert list(model.state_dict()) == names


@pytest.mark.parametrize("way", WAYS)
def test_one_batch_is_no_list_of_batches(way):
    """A tensor would be taken for as many batches as it has samples."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    one = torch.randn(4, 7, 16)
    for wrong in (one, {"src": one}, "texts.npz", 5):
        ways = {**WAYS, "adapt_": pa.adapt_}
        with pytest.raises(TypeError, match=r"batches is .*; expected a list of batches"):
            ways[way](model, wrong)
        pa.revert_(model) if way == "distill_" else None
    with pytest.raises(TypeError, match=r"batches is \(4, 7, 16\) of float32; expected a list"):
        pa.plan(model, batches=one)


def test_what_a_model_cannot_compute_is_one_sentence():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with pytest.raises(ValueError, match=r"take the first batch, \(2, 5, 7\) of float32: \w+"):
        pa.plan(model, batches=[torch.randn(2, 5, 7)])


def test_labels_that_are_not_there():
    model, batch = ARCHITECTURES["bert"]()
    batch.pop("labels", None)
    settings = AdaptSettings(task=1.0)
    with pytest.raises(ValueError, match=r"task is 1\.0, but the model gives no loss .* task=0"):
        pa.adapt_(model, [batch, batch], settings=settings)
