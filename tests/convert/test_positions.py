import pytest
import torch

import primal_attention as pa
from primal_attention.convert import extend_positions_

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "distilbert", "electra", "gpt2"])
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


def test_both_sides_of_a_model_of_two(tmp_path):
    """Positions are counted without the rows that this model keeps before them."""
    torch.manual_seed(0)
    model, _ = ARCHITECTURES["bart"]()
    extend_positions_(model.eval(), 64)
    assert model.config.max_position_embeddings == 64
    ids = torch.randint(3, 40, (1, 64))
    pa.convert_(model, layers="all", cross=True, rank=4)
    out = model(input_ids=ids, decoder_input_ids=ids).logits
    pa.save_pretrained(model, tmp_path)
    again = pa.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(input_ids=ids, decoder_input_ids=ids).logits, out)


def test_a_table_that_is_long_enough_stays():
    model, _ = ARCHITECTURES["whisper"]()  # 10 positions of sounds, 32 of tokens
    extend_positions_(model, 20)
    config = model.config
    assert (config.max_source_positions, config.max_target_positions) == (20, 32)
    model(
        input_features=torch.randn(1, 4, 40), decoder_input_ids=torch.ones(1, 5, dtype=torch.long)
    )


def test_patches_of_an_image_stay():
    model, batch = ARCHITECTURES["clip"]()
    extend_positions_(model, 64)
    model(**{**batch, "input_ids": torch.randint(3, 40, (2, 64))})
    model, _ = ARCHITECTURES["vit"]()
    with pytest.raises(ValueError, match="patches of an image are not stretched"):
        extend_positions_(model, 64)


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
    with pytest.raises(TypeError, match="model is 'bert'; expected a module"):
        extend_positions_("bert", 64)
