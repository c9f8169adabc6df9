"""Generation with the library's cache equals the full forward, token for token."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.convert import convert_, revert_

transformers = pytest.importorskip("transformers")

CLOSE = {"rtol": 1e-8, "atol": 1e-10}
MODELS = ["bert-decoder", "gpt2", "llama", "qwen2", "qwen3"]
NEW = 5


@pytest.fixture
def generator(hugging_face, awaken):
    """A converted model, ids (2, 7), and a mask with padding on the left of the second sample."""

    def make(name, layers="all", weights="tied"):
        model, batch, *_ = hugging_face(name)
        awaken(convert_(model, layers=layers, rank=3, weights=weights))
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        return model, batch["input_ids"], batch["attention_mask"].flip(1)

    return make


def generate(model, ids, mask, **options):
    made = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False,
        output_logits=True, return_dict_in_generate=True, **options,
    )  # fmt: skip
    return made.sequences, torch.stack(made.logits, 1)  # (B, 7 + NEW), (B, NEW, vocabulary)


SOME = [("gpt2", "last", "free"), ("llama", 0, "tied"), ("llama", "last", "free")]


@pytest.mark.parametrize(
    ("name", "layers", "weights"),
    [(name, "all", weights) for name in MODELS for weights in ("free", "tied")] + SOME,
)
def test_cached_equals_full(generator, name, layers, weights):
    model, ids, mask = generator(name, layers, weights)
    tokens, logits = generate(model, ids, mask)
    plain, expected = generate(model, ids, mask, use_cache=False)
    assert torch.equal(tokens, plain)
    assert_close(logits, expected, **CLOSE)


# not BERT, which counts padding as positions, with softmax attention too
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "qwen3"])
def test_padding_on_the_left_changes_nothing(generator, name):
    model, ids, mask = generator(name)
    _, together = generate(model, ids, mask)
    _, alone = generate(model, ids[1:, 3:], mask[1:, 3:])
    assert_close(together[1:], alone, **CLOSE)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_beams(generator, name):
    model, ids, mask = generator(name)
    options = {"input_ids": ids, "attention_mask": mask, "num_beams": 3, "max_new_tokens": NEW}
    cached = model.generate(**options, do_sample=False)
    assert torch.equal(cached, model.generate(**options, do_sample=False, use_cache=False))


@pytest.mark.parametrize("layers", ["last", "all"])
def test_a_static_cache(generator, layers):
    model, ids, mask = generator("llama", layers)
    tokens, logits = generate(model, ids, mask, cache_implementation="static")
    expected, full = generate(model, ids, mask, use_cache=False)
    assert torch.equal(tokens, expected)
    assert_close(logits, full, **CLOSE)


def test_the_cache_does_not_grow(generator):
    model, ids, _ = generator("llama")
    cache = transformers.DynamicCache(config=model.config)
    sizes = []
    for token in ids[:, :4].split(1, dim=1):
        model(input_ids=token, past_key_values=cache, use_cache=True)
        sizes.append([layer.state.sums.numel() for layer in cache.layers])
    assert sizes[0] == sizes[-1]
    assert cache.get_seq_length() == 4


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_cache_in_pieces(generator, name):
    """Several tokens at a time, with a past."""
    model, ids, mask = generator(name)
    full = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    cache = transformers.DynamicCache(config=model.config)
    # without padding, positions are counted alike in every call
    first = model(input_ids=ids[:1, :3], past_key_values=cache, use_cache=True).logits
    rest = model(input_ids=ids[:1, 3:], past_key_values=cache, use_cache=True).logits
    assert_close(torch.cat([first, rest], 1), full[:1], **CLOSE)


def test_a_changed_past_is_an_error(generator):
    model, ids, mask = generator("gpt2")
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    longer = torch.cat([mask, mask.new_ones(2, 1)], 1)
    longer[0, 0] = 0
    with pytest.raises(ValueError, match="other past positions"):
        model(input_ids=ids[:, :1], attention_mask=longer, past_key_values=cache)
    with pytest.raises(ValueError, match="other past positions"):
        model(input_ids=ids[:, :1], past_key_values=cache)


def test_cropping_is_an_error(generator):
    model, ids, mask = generator("gpt2")
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="cannot forget single positions"):
        cache.crop(-1)


def test_repeated_and_chosen_samples(generator):
    model, ids, mask = generator("llama")
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    longer = torch.cat([mask, mask.new_ones(2, 1)], 1).flip(0)
    step = model(input_ids=ids.flip(0)[:, :1], attention_mask=longer, past_key_values=cache)
    both = torch.cat([ids, ids[:, :1]], 1).flip(0)
    # the model counts positions from the left here; so does the full pass
    full = model(input_ids=both, attention_mask=longer, use_cache=False)
    assert_close(step.logits[:, -1], full.logits[:, -1], **CLOSE)
    cache.reset()
    assert cache.get_seq_length() == 0


def test_caches_do_not_survive_a_conversion(hugging_face):
    model, batch, *_ = hugging_face("gpt2")
    ids = batch["input_ids"]
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, past_key_values=cache, use_cache=True)
    convert_(model, rank=3)
    with pytest.raises(ValueError, match="holds keys and values of softmax"):
        model(input_ids=ids[:, :1], past_key_values=cache)
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, past_key_values=cache, use_cache=True)
    revert_(model)
    with pytest.raises(ValueError, match="a new cache after convert_ or revert_"):
        model(input_ids=ids[:, :1], past_key_values=cache)


def test_a_cache_needs_a_causal_layer(hugging_face):
    model, batch, *_ = hugging_face("gpt2")
    convert_(model, rank=3, causal=False, weights="tied")
    with pytest.raises(ValueError, match="expected past_key_values=None"):
        model(input_ids=batch["input_ids"], use_cache=True)
