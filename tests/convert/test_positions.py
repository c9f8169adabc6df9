import pytest
import torch

import primal_attention as pa
from primal_attention.convert import extend_positions_

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "gpt2"])
def test_longer_inputs_and_a_folder(name, tmp_path):
    torch.manual_seed(0)
    model, _ = ARCHITECTURES[name]()
    ids = torch.randint(3, 40, (1, 50))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=ids)
    extend_positions_(model.eval(), 64)
    pa.convert_(model, layers="all", rank=4)
    out = model(input_ids=ids).logits
    pa.save_pretrained(model, tmp_path)
    torch.testing.assert_close(pa.from_pretrained(tmp_path).eval()(input_ids=ids).logits, out)


def test_the_rows_are_placed_evenly():
    model, _ = ARCHITECTURES["roberta"]()  # the row of the padding comes before position 0
    table = model.roberta.embeddings.position_embeddings
    old = table.weight.detach().clone()
    extend_positions_(model, 61)  # 31 positions have 30 gaps; 61 have 60
    new = table.weight.detach()
    torch.testing.assert_close(new[:1], old[:1])
    torch.testing.assert_close(new[1::2], old[1:])
    torch.testing.assert_close(new[2], (old[1] + old[2]) / 2)
    assert model.config.max_position_embeddings == 62


def test_refusals():
    model, _ = ARCHITECTURES["bert"]()
    with pytest.raises(ValueError, match="length is 32; expected an integer above the 32"):
        extend_positions_(model, 32)
    model, _ = ARCHITECTURES["llama"]()
    with pytest.raises(ValueError, match="LlamaForCausalLM has no table of learned positions"):
        extend_positions_(model, 64)
