import pytest
import torch

from primal_attention.convert.examples import call_model, example_of

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", ["bert", "t5", "whisper", "wav2vec2", "clip", "patchtst", "swin"])
def test_an_example_is_an_input(name):
    model, _ = ARCHITECTURES[name]()
    call_model(model.eval(), example_of(model))


def test_unknown_inputs_are_named():
    model, _ = ARCHITECTURES["decision-transformer"]()
    with pytest.raises(ValueError, match="takes states, for which no example is known"):
        example_of(model)


def test_batches_are_tensors_tuples_or_keywords():
    model = torch.nn.Linear(2, 2)
    x = torch.randn(3, 2)
    for batch in (x, (x,), {"input": x}):
        assert torch.equal(call_model(model, batch), model(x))
