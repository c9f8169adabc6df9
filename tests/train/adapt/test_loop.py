"""Conversion and recovery of a small encoder."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.train.adapt import AdaptSettings, adapt_
from primal_attention.train.adapt.adapting import _split
from primal_attention.train.adapt.loop import _before


@pytest.fixture
def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(5, 16), encoder, nn.Linear(16, 4)).eval()


BATCHES = [torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(i)) for i in range(12)]
SHORT = AdaptSettings(layerwise=4, steps=12, every=4, lr=1e-3)


def test_it_becomes_more_like_the_original(model):
    base = copy.deepcopy(model)
    heard = []
    found = adapt_(
        model, BATCHES, layers=slice(1, 3), rank=8, settings=SHORT,
        quality=lambda m: m(BATCHES[0]).mean().item(), tell=lambda *said: heard.append(said),
    )  # fmt: skip
    assert found.layers == ("1.layers.1.self_attn", "1.layers.2.self_attn")
    assert found.blocks == ("1.layers.1", "1.layers.2")
    assert [each.step for each in found.history] == [0, 0, 4, 8, 12]
    assert found.after.loss < 0.7 * found.before.loss
    assert found.original == pytest.approx(base(BATCHES[0]).mean().item())
    assert heard[-1][:2] == (12, 12)
    # what comes before the first converted layer is as it was, and may be trained again
    for old, new in zip(base[0].parameters(), model[0].parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.requires_grad
    assert not torch.equal(base[2].weight, model[2].weight)
    assert not model.training


def test_only_so_many_those_that_change_the_outputs_least(model):
    planned = pa.plan(model, batches=BATCHES[1:9], count=2, rank=4)
    none = AdaptSettings(layerwise=0, steps=0)
    found = adapt_(
        copy.deepcopy(model), BATCHES[1:9], held_out=BATCHES[:1], count=2, rank=4, settings=none
    )
    assert len(found.layers) == 2
    assert found.layers == tuple(row.name for row in planned.changes)
    again = adapt_(model, BATCHES, layers=planned, settings=none)
    assert again.layers == found.layers


def test_an_interrupted_adaptation_ends_as_if_it_had_not_stopped(model, tmp_path):
    other = copy.deepcopy(model)
    whole = adapt_(model, BATCHES, rank=8, settings=SHORT, folder=tmp_path / "whole")

    def stop(step, steps, text):
        if step == 9:
            raise KeyboardInterrupt

    base = copy.deepcopy(other)
    with pytest.raises(KeyboardInterrupt):
        adapt_(other, BATCHES, rank=8, settings=SHORT, folder=tmp_path / "a", tell=stop)
    again = adapt_(base, BATCHES, rank=8, settings=SHORT, folder=tmp_path / "a")
    assert again == whole
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, base.state_dict()[name])
    with pytest.raises(ValueError, match="an adaptation with other settings"):
        adapt_(pa.revert_(base), BATCHES, rank=8, folder=tmp_path / "a")


def test_it_stops_early_with_the_best_weights(model):
    wild = AdaptSettings(layerwise=0, steps=50, every=1, patience=2, lr=3.0)
    found = adapt_(model, BATCHES, rank=8, settings=wild)
    assert found.ended == f"no evaluation after step {found.best} was better"
    assert len(found.history) == found.best + 3
    assert found.after.loss == min(each.loss for each in found.history)


def test_labels_count_in_what_is_trained_and_in_what_it_stops_by():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**shape, intermediate_size=24, vocab_size=20)
    base = transformers.BertForSequenceClassification(config).eval()
    ids = [batch[..., 0].abs().mul(6).long().clamp(max=19) for batch in BATCHES]
    batches = [{"input_ids": each, "labels": torch.ones(4, dtype=torch.long)} for each in ids]

    def own_loss(model):
        return sum(float(model(**batch).loss.detach()) for batch in batches[:2]) / 2

    reached = {}
    for task in (0.0, 5.0):
        model = copy.deepcopy(base)
        settings = dataclasses.replace(SHORT, task=task)
        found = adapt_(
            model, batches[2:], layers="all", rank=4, settings=settings, held_out=batches[:2]
        )
        reached[task] = own_loss(model)
        after = found.after
        expected = after.outputs + sum(after.blocks) / len(after.blocks) + task * reached[task]
        assert after.loss == pytest.approx(expected, rel=1e-4)
    assert found.best == 12
    assert reached[5.0] < reached[0.0] - 0.01


def test_converted_layers_have_a_rate_of_their_own(model):
    moved = {}
    for factor in (1e-6, 1.0):
        trial = copy.deepcopy(model)
        start = {
            n: p.clone() for n, p in pa.convert_(copy.deepcopy(model), rank=8).named_parameters()
        }
        adapt_(
            trial, BATCHES, rank=8,
            settings=AdaptSettings(layerwise=0, steps=4, every=4, lr=1e-3, converted=factor),
        )  # fmt: skip
        far = {n: float((p - start[n]).abs().max()) for n, p in trial.named_parameters()}
        moved[factor] = [far["1.layers.2.self_attn.primal.concat.weight"], far["2.weight"]]
    assert moved[1e-6][0] < 1e-6 < 1e-4 < moved[1.0][0]
    assert moved[1e-6][1] > 1e-4


def test_one_layer_after_another(model):
    base = copy.deepcopy(model).train()
    other = copy.deepcopy(model)
    heard = []
    settings = dataclasses.replace(SHORT, one_by_one=True, steps=24)
    found = adapt_(
        model, BATCHES, layers=slice(1, 3), teacher=base, rank=8, settings=settings,
        tell=lambda *said: heard.append(said),
    )  # fmt: skip
    # as by hand: each as if it were alone, with half of the steps
    parts = [
        adapt_(other, BATCHES, layers=-1 - i, teacher=base, rank=8, settings=SHORT) for i in (0, 1)
    ]
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
    assert found.layers == parts[1].layers
    assert found.best == 12 + parts[1].best
    assert found.after.loss == parts[1].after.loss
    assert [each.turn for each in found.history] == [0] + 5 * [1] + 5 * [2]
    assert found.history[1].blocks == (0.0, *parts[0].before.blocks)
    # before: all of them, untrained
    untrained = adapt_(
        copy.deepcopy(base).eval(), BATCHES, layers=slice(1, 3), rank=8,
        settings=AdaptSettings(layerwise=0, steps=0),
    )  # fmt: skip
    assert found.before == untrained.before
    assert heard[-1][:2] == (24, 24)
    # the teacher is as it was
    assert all(part.training for part in base.modules())
    assert all(parameter.requires_grad for parameter in base.parameters())


def test_one_after_another_continues_where_it_was_killed(model, tmp_path):
    other, third = copy.deepcopy(model), copy.deepcopy(model)
    settings = dataclasses.replace(SHORT, one_by_one=True, steps=24)
    how = {"layers": slice(1, 3), "rank": 8, "settings": settings, "folder": tmp_path / "a"}
    whole = adapt_(model, BATCHES, **{**how, "folder": None})

    def stop(step, steps, text):
        if step == 21:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt_(other, BATCHES, **how, tell=stop)
    heard = []
    again = adapt_(third, BATCHES, **how, tell=lambda step, *_: heard.append(step))
    assert again == whole
    assert min(heard) > 20  # the first turn was done, and half of the second
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, third.state_dict()[name])
    with pytest.raises(ValueError, match="one attention after another; expected the same"):
        adapt_(pa.revert_(third), BATCHES, **{**how, "settings": SHORT})


def test_every_attention_has_a_step(model):
    few = AdaptSettings(one_by_one=True, steps=2)
    with pytest.raises(ValueError, match="steps is 2; expected one for each of 3 attentions"):
        adapt_(model, BATCHES, layers="all", settings=few)
    with pytest.raises(ValueError, match="one_by_one is 1; expected True or False"):
        AdaptSettings(one_by_one=1)


def test_what_is_used_before_stays_also_where_it_is_used_again():
    inner = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    shared = nn.Linear(8, 8)
    model = nn.Sequential(nn.Linear(8, 8), shared, nn.TransformerEncoder(inner, 1), shared)
    pa.convert_(model, rank=2)
    early = [*model[0].parameters(), *shared.parameters()]
    assert _before(model, torch.randn(1, 3, 8)) == {id(p) for p in early}


def test_what_is_remembered_changes_no_result(model):
    found = {}
    for gigabytes in (0.0, 4e-5, 1.0):  # nothing, a few batches, everything
        trial = copy.deepcopy(model)
        calls = []
        early = trial[1].layers[0].linear1  # its copies have the hook, too
        hook = early.register_forward_hook(lambda m, *_: calls.append(m) if m is early else None)  # noqa: B023
        settings = AdaptSettings(layerwise=0, steps=20, every=10, lr=1e-3, remember=gigabytes)
        adapt_(trial, BATCHES, layers=-1, rank=8, settings=settings)
        hook.remove()
        found[gigabytes] = len(calls), trial.state_dict()
    for gigabytes in (4e-5, 1.0):
        for name, tensor in found[0.0][1].items():
            torch.testing.assert_close(found[gigabytes][1][name], tensor)
    # whether it takes the first batch, the trial of it, and the search for what is used before
    assert found[1.0][0] == 3


def test_a_model_whose_blocks_are_no_chain_is_run_whole(model):
    class Skipping(nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.layers = encoder.layers

        def forward(self, x):
            first = self.layers[0](x)
            return self.layers[2](self.layers[1](first) + x) + first

    skipping = nn.Sequential(model[0], Skipping(model[1]), model[2])
    other = copy.deepcopy(skipping)
    for trial, gigabytes in ((skipping, 0.0), (other, 1.0)):
        settings = AdaptSettings(layerwise=0, steps=6, every=6, lr=1e-3, remember=gigabytes)
        adapt_(trial, BATCHES, layers=-1, rank=8, settings=settings)
    for one, two in zip(skipping.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_refusals():
    with pytest.raises(ValueError, match="0 batches to learn from and 0 held out"):
        _split([1], None)
    with pytest.raises(ValueError, match="every is 0; expected an integer of at least 1"):
        AdaptSettings(every=0)
    with pytest.raises(ValueError, match="lr is 0; expected a number above 0"):
        AdaptSettings(lr=0)
    with pytest.raises(ValueError, match="converted is 0; expected a number above 0"):
        AdaptSettings(converted=0)
