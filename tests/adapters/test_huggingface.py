"""Hugging Face models: what every adapter promises."""

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.convert import convert_, converted_layers, distill_, init_ksvd_, plan, revert_

pytest.importorskip("transformers")

CLOSE = {"rtol": 1e-8, "atol": 1e-10}
ENCODERS = ["bert", "roberta", "distilbert", "vit", "deit"]
DECODERS = ["bert-decoder", "gpt2", "decision", "llama", "qwen2", "qwen3"]
KINDS = [(name, w) for name in ENCODERS for w in ("data", "free", "tied")]
KINDS += [(name, w) for name in DECODERS for w in ("free", "tied")]
SHORT = 4


@pytest.mark.parametrize(
    ("name", "weights", "implementation"),
    [(*kind, "sdpa") for kind in KINDS] + [(*kind, "eager") for kind in KINDS if kind[1] == "tied"],
)
def test_padding_changes_nothing_and_revert_is_exact(
    hugging_face, awaken, name, weights, implementation
):
    model, batch, alone, out, _, _ = hugging_face(name)
    model.set_attn_implementation(implementation)
    before = out(model, batch)
    awaken(convert_(model, layers="all", rank=3, weights=weights))
    together = out(model, batch)
    assert not torch.allclose(together, before)
    assert_close(together[1:, :SHORT], out(model, alone), **CLOSE)
    assert torch.equal(out(revert_(model), batch), before)


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_plan_and_defaults(hugging_face, name):
    model, _, _, _, layers, causal = hugging_face(name)
    found = plan(model, rank=3)
    assert len(found.rows) == layers
    (row,) = found.changes
    assert row is found.rows[-1]
    assert (row.settings["weights"], row.settings["causal"]) == ("tied", causal)
    before = sum(p.numel() for p in model.parameters())
    convert_(model, found)
    after = sum(p.numel() for p in model.parameters())
    assert after - before == row.parameters_after - row.parameters


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_training_step_with_ksvd_loss(hugging_face, name):
    model, batch, _, out, _, _ = hugging_face(name)
    convert_(model, layers="all", rank=3)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = converted_layers(model)
    before = [layer.primal.sqrt_lambda.detach().clone() for layer in layers]
    (out(model, batch).square().mean() + 0.1 * pa.ksvd_loss(model)).backward()
    optimizer.step()
    for layer, old in zip(layers, before, strict=True):
        assert not torch.equal(layer.primal.sqrt_lambda, old)
        assert layer.primal.concat.weight.any()


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen3"])
def test_distillation_with_padding(hugging_face, name):
    """The cache that decoders make by default does not disturb it."""
    model, batch, _, _, _, _ = hugging_face(name)
    convert_(model, layers="all", rank=3, weights="tied")
    rows = distill_(model, [batch], steps=15)
    assert all(row.after < row.before for row in rows)
    torch.testing.assert_close(model(**batch).logits.isnan().any(), torch.tensor(False))


def test_ksvd_start(hugging_face):
    model, batch, _, _, _, _ = hugging_face("vit")
    convert_(model, rank=3, weights="data")
    old = converted_layers(model)[0].primal.w_e.detach().clone()
    init_ksvd_(model, batch)
    assert not torch.equal(converted_layers(model)[0].primal.w_e, old)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_four_dimensional_masks(hugging_face, awaken, name):
    """Ready-made masks are honoured or refused, bool and additive."""
    model, batch, _, out, _, causal = hugging_face(name)
    awaken(convert_(model, rank=3))
    expected = out(model, batch)
    visible = batch["attention_mask"].bool()[:, None, None].expand(2, 1, 7, 7)
    if causal:
        visible = visible & torch.ones(7, 7, dtype=torch.bool).tril()
    added = torch.zeros(2, 1, 7, 7, dtype=torch.float64)
    added = added.masked_fill(~visible, torch.finfo(torch.float64).min)
    for mask in (visible, added):
        found = out(model, {**batch, "attention_mask": mask})
        assert_close(found[0], expected[0], **CLOSE)
        assert_close(found[1, :SHORT], expected[1, :SHORT], **CLOSE)
    window = visible & torch.ones(7, 7, dtype=torch.bool).triu(-2)
    with pytest.raises(ValueError, match="single pairs"):
        out(model, {**batch, "attention_mask": window})
    with pytest.raises(ValueError, match="finite number"):
        out(model, {**batch, "attention_mask": added.clamp(min=-3.0)})


def test_packed_sequences_are_refused(hugging_face):
    """Positions that start again mean separate sequences in one row, which would be mixed up."""
    model, batch, _, _, _, _ = hugging_face("llama")
    convert_(model, rank=3)
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3]]).expand(2, -1)
    with pytest.raises(ValueError, match="single pairs"):
        model(input_ids=batch["input_ids"], position_ids=positions, use_cache=False)


def test_other_arguments_are_refused(hugging_face):
    model, batch, _, _, _, _ = hugging_face("llama")
    convert_(model, rank=3)
    with pytest.raises(ValueError, match="cu_seq_lens_q is given"):
        model(**batch, cu_seq_lens_q=torch.tensor([0, 7]))


@pytest.mark.parametrize("name", ["bert", "vit", "gpt2", "llama"])
def test_attention_weights_are_refused(hugging_face, name):
    """... and not silently left out of the tuple."""
    model, batch, _, _, layers, _ = hugging_face(name)
    model.set_attn_implementation("eager")
    assert len(model(**batch, output_attentions=True).attentions) == layers
    convert_(model, rank=3)
    with pytest.raises(ValueError, match="output_attentions=True"):
        model(**batch, output_attentions=True)
    model(**batch)


def test_two_models_of_one_config(hugging_face):
    """The entry in the config is the converted model's own."""
    model, batch, _, out, _, _ = hugging_face("bert")
    twin = type(model)(model.config).double().eval()
    before = out(twin, batch)
    convert_(model, rank=3)
    assert hasattr(model.config, "primal_attention")
    assert not hasattr(twin.config, "primal_attention")
    assert model.bert.config is model.config
    revert_(model)
    assert not hasattr(model.config, "primal_attention")
    assert model.bert.encoder.layer[-1].attention.self.config is model.config
    assert torch.equal(out(twin, batch), before)


def test_a_window_is_dropped_and_the_plan_says_so():
    import transformers as t

    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
    config = t.Qwen2Config(**sizes, **window, num_key_value_heads=2, intermediate_size=8)
    model = t.Qwen2ForCausalLM(config).eval()
    planned = plan(model, "all")
    assert [row.adapter for row in planned.rows] == [
        "transformers/rotary",
        "transformers/interface",
    ]
    assert "drops its window of 3 positions: it will see all" in planned.rows[1].note
    convert_(model, planned)
    ids = torch.arange(8).unsqueeze(0)
    with torch.no_grad():
        before = model(ids).logits
        ids[0, 0] = 5  # further away than the window
        assert (model(ids).logits[0, -1] != before[0, -1]).any()


def test_low_rank_adapters_are_refused(hugging_face):
    model = hugging_face("bert").model

    class Lora(torch.nn.Module):
        weight = torch.zeros(16, 16)

    model.bert.encoder.layer[-1].attention.self.query = Lora()
    with pytest.raises(ValueError, match=r"Lora of torch.float32; expected nn.Linear"):
        plan(model)


def test_gradient_checkpointing(hugging_face):
    model, batch, _, out, _, _ = hugging_face("gpt2")
    convert_(model, rank=3)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    converted_layers(model)[0].primal.dropout = 0.0

    def gradients():
        model.zero_grad()
        (out(model, batch).square().mean() + 0.1 * pa.ksvd_loss(model)).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for a, b in zip(gradients(), plain, strict=True):
        assert_close(a, b, **CLOSE)
