"""The sweep over architectures: convert, train a step, save, load, revert."""

import copy

import pytest
import torch

import primal_attention as pa
from primal_attention.convert import converted_layers

from .architectures import ARCHITECTURES

pytest.importorskip("transformers")

REFUSED = {"mpnet": "MPNetSelfAttention", "deberta": "DisentangledSelfAttention"}
CONVERTED = [name for name in ARCHITECTURES if name not in REFUSED]


def build(name):
    torch.manual_seed(0)
    model, batch = ARCHITECTURES[name]()
    return model.eval(), batch


def run(model, batch):
    with torch.no_grad():
        out = model(**batch)
    return next(t for t in out.to_tuple() if isinstance(t, torch.Tensor))


@pytest.mark.parametrize("name", CONVERTED)
def test_converts_trains_saves_loads_and_reverts(name, tmp_path):
    model, batch = build(name)
    before = copy.deepcopy(model.state_dict())
    expected = run(model, batch)
    pa.convert_(model, layers="all", cross=True, rank=4)
    layers = converted_layers(model)
    assert layers
    assert not torch.allclose(run(model, batch), expected)
    for part in model.modules():  # running statistics are no parameters: they would stay changed
        part.training = not isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=1e-3)
    out = model(**batch)
    loss = sum(t.float().square().mean() for t in out.to_tuple() if torch.is_tensor(t))
    (loss + pa.ksvd_loss(model)).backward()
    for layer in layers:
        trained = [p.grad for n, p in layer.primal.named_parameters() if p.grad is not None]
        assert trained
        assert all(g.isfinite().all() for g in trained)
    optimizer.step()
    model.eval()
    after = run(model, batch)
    pa.save(model, tmp_path)
    torch.testing.assert_close(run(pa.load(tmp_path).eval(), batch), after)
    pa.revert_(model)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert torch.equal(run(model, batch), expected)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_sentence(name):
    model, _ = build(name)
    with pytest.raises(ValueError, match=f"{REFUSED[name]} has no adapter and calls neither"):
        pa.plan(model)


@pytest.mark.parametrize("name", ["xlm-roberta", "mistral", "gemma3", "phi3"])
def test_padding_changes_nothing(name):
    model, batch = build(name)
    pa.convert_(model, layers="all", rank=4)
    alone = {"input_ids": batch["input_ids"][1:, :4]}
    torch.testing.assert_close(run(model, batch)[1:, :4], run(model, alone))


def test_padding_of_an_encoder_changes_nothing_in_its_decoder():
    model, batch = build("bart")
    pa.convert_(model, layers="all", cross=True, rank=4)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]] * 2)
    alone = {**batch, "input_ids": batch["input_ids"][:, :4]}
    torch.testing.assert_close(run(model, {**batch, "attention_mask": mask}), run(model, alone))


@pytest.mark.parametrize("name", ["mistral", "gemma", "phi3", "bart", "t5", "whisper"])
@pytest.mark.parametrize("attention", ["primal", "linear"])
def test_decoders_do_not_look_ahead_and_continue_from_a_cache(name, attention):
    model, batch = build(name)
    options = {"rank": 4} if attention == "primal" else {}
    pa.convert_(model, layers="all", cross=True, attention=attention, **options)
    asked = "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids"
    batch.pop("attention_mask", None)
    ids = batch[asked]
    full = run(model, {**batch, "use_cache": False})
    changed = ids.clone()
    changed[:, 5:] = 7
    ahead = run(model, {**batch, asked: changed, "use_cache": False})
    torch.testing.assert_close(ahead[:, :5], full[:, :5])
    with torch.no_grad():
        first = model(**{**batch, asked: ids[:, :4]}, use_cache=True)
        rest = model(**{**batch, asked: ids[:, 4:]}, past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), full)


@pytest.mark.parametrize("attention", sorted(set(pa.available_attentions()) - {"primal"}))
def test_every_attention_of_the_registry_can_be_the_target(attention):
    options = {"max_length": 8} if attention == "linformer" else {}
    for name in ("bert", "electra"):
        model, batch = build(name)
        if name == "electra" and attention in ("linformer", "lka"):
            with pytest.raises(ValueError, match="cannot be converted"):
                pa.plan(model, attention=attention, **options)
            continue
        pa.convert_(model, layers="all", attention=attention, **options)
        assert run(model, batch).isfinite().all()
        pa.revert_(model)


@pytest.mark.parametrize("name", ["bert", "llama", "electra", "gemma", "clip"])
def test_softmax_as_the_target_is_the_original(name):
    model, batch = build(name)
    expected = run(model, batch)
    pa.convert_(model, layers="all", attention="softmax")
    keep = batch["attention_mask"].bool() if "attention_mask" in batch else slice(None)
    torch.testing.assert_close(run(model, batch)[keep], expected[keep], rtol=1e-4, atol=1e-5)
