import pytest
import torch
from torch import nn

from primal_attention.convert.matching import Pair, block_of

from ..adapters.architectures import ARCHITECTURES


def test_blocks_of_attentions():
    assert block_of("bert.encoder.layer.11.attention") == "bert.encoder.layer.11"
    assert block_of("blocks.0.stages.2.attn.inner") == "blocks.0.stages.2"
    assert block_of("attention") == "attention"


def test_a_model_is_at_no_distance_from_itself_and_padding_does_not_count():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, batch = ARCHITECTURES["bert"]()
    other, _ = ARCHITECTURES["bert"]()
    blocks = ("bert.encoder.layer.0", "bert.encoder.layer.1")
    with torch.no_grad():
        same = Pair(model.eval(), model, blocks).distance(batch)
    assert float(same.outputs) == pytest.approx(0, abs=1e-6)
    assert float(same.agreement) == 1.0
    assert same.blocks.tolist() == [0.0, 0.0]
    found = Pair(model, other.eval(), blocks).distance(batch)
    changed = {
        **batch,
        "input_ids": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 9),
    }
    again = Pair(model, other, blocks).distance(changed)
    torch.testing.assert_close(found.blocks, again.blocks)
    torch.testing.assert_close(found.outputs, again.outputs)
    labels = {**batch, "labels": batch["input_ids"]}
    assert Pair(model, other, blocks).distance(labels).task is not None


def test_outputs_that_are_no_logits_are_compared_by_their_errors():
    one, two = nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Linear(3, 3))
    x = torch.randn(50, 3)
    goal, out = one(x), two(x)
    error = (out - goal).square().mean() / (goal - goal.mean(0)).square().mean()
    found = Pair(one, two, ("0",)).distance(x)
    torch.testing.assert_close(found.outputs, error)
    torch.testing.assert_close(found.agreement, 1 - error)
