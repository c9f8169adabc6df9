"""The settings of a run: what they accept, what they say, how they are stored."""

import dataclasses
import hashlib
import json
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from primal_attention.attention import attention_info, available_attentions, registry
from primal_attention.tasks import DataError
from primal_attention.train import RunConfig

TASK = "uea/JapaneseVowels"


def test_defaults_are_valid():
    RunConfig(task=TASK).validate()


def test_round_trip():
    config = RunConfig(
        task=TASK, recipe="paper", attention=("softmax", "primal"), lr=0.1 + 0.2, clip=None, seed=7
    )
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert isinstance(again.attention, tuple)
    assert set(config.to_dict()) == {field.name for field in dataclasses.fields(RunConfig)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "uea/JapanseVowels"}, r"unknown task .*did you mean 'uea/JapaneseVowels'"),
        ({"task": None}, "task is None; expected a name"),
        ({"recipe": "papr"}, r"unknown recipe .*did you mean 'paper'"),
        ({"protocol": "hold"}, r"protocol is 'hold'.*; expected one of 'holdout', 'paper'"),
        ({"attention": ("primal", "softmx")}, r"unknown attention 'softmx' .*'softmax'"),
        ({"attention": "primal"}, "attention is 'primal'; expected one name per layer"),
        ({"attention": ()}, r"attention is \(\); expected one name per layer"),
        ({"weights": "dta"}, r"weights is 'dta' \(did you mean 'data'\?\)"),
        ({"anchor_rule": "median"}, "anchor_rule is 'median'"),
        ({"rank": 0}, "rank is 0; expected an integer of at least 1"),
        ({"rank_multi": 2.5}, "rank_multi is 2.5; expected an integer"),
        ({"width": True}, "width is True; expected an integer"),
        ({"heads": 3}, "heads is 3; expected a divisor of the width, 128"),
        ({"feedforward": -1}, "feedforward is -1"),
        ({"eta": -0.1}, "eta is -0.1; expected a number of at least 0"),
        ({"dropout": 1.0}, r"dropout is 1.0; expected a number in \[0, 1\)"),
        ({"norm": "both"}, "norm is 'both'"),
        ({"activation": "tanh"}, "activation is 'tanh'"),
        ({"positions": "learnt"}, r"positions is 'learnt' \(did you mean 'learned'\?\)"),
        ({"head": "max"}, "head is 'max'"),
        ({"normalise": "series"}, "normalise is 'series'"),
        ({"optimizer": "adamm"}, r"optimizer is 'adamm' \(did you mean 'adam'\?\)"),
        ({"lr": 0.0}, "lr is 0.0; expected a positive number"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": "0.1"}, "lr is '0.1'"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"clip": 0.0}, "clip is 0.0; expected a positive number or None"),
        ({"schedule": "step"}, "schedule is 'step'"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"mixup": -1.0}, "mixup is -1.0"),
        ({"augment": "much"}, "augment is 'much'"),
        ({"batching": "all"}, "batching is 'all'"),
        ({"epoch_steps": 0}, "epoch_steps is 0"),
        ({"max_length": 2.5}, "max_length is 2.5"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"seed": -1}, "seed is -1; expected an integer of at least 0"),
        ({"data_dir": 3}, "data_dir is 3; expected a path or None"),
        ({"precision": "16-mixed"}, "precision is '16-mixed'"),
        ({"devices": 0}, "devices is 0"),
        ({"nodes": 0}, "nodes is 0"),
        ({"accelerator": "gpu"}, "accelerator is 'gpu'"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds is -1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_settings(changes, message):
    config = RunConfig(**({"task": TASK} | changes))
    with pytest.raises(ValueError, match=message):
        config.validate()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("primal", {"anchors": 0}, "attention 'primal' cannot be made: anchors is 0; expected"),
        ("performer", {"features": "many"}, "attention 'performer' cannot be made: .*many"),
        ("linformer", {"projection": -1}, "attention 'linformer' cannot be made: projection is -1"),
    ],
)
def test_wrong_options_of_attentions_are_known_before_a_run(name, options, message):
    config = RunConfig(task=TASK, attention=("softmax", name), options={name: options})
    with pytest.raises(ValueError, match=message):
        config.validate()


def test_every_attention_is_checked_without_random_numbers():
    before = torch.get_rng_state()
    for name in available_attentions():
        RunConfig(task=TASK, attention=(name,)).validate()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("fails", "refused"), [(ValueError, True), (NotImplementedError, False)])
def test_an_attention_of_a_plugin_is_checked_as_far_as_it_can_be(fails, refused, monkeypatch):
    class Computing(nn.Module):
        def __init__(self, embed_dim, num_heads):
            raise fails("of its own")

    facts = dataclasses.replace(attention_info("softmax"), name="computing", build=Computing)
    monkeypatch.setitem(registry._registry, "computing", facts)
    config = RunConfig(task=TASK, attention=("computing",))
    with pytest.raises(ValueError, match="of its own") if refused else nullcontext():
        config.validate()


def test_every_setting_is_checked():
    """A value of a type that fits nothing is refused, whatever the setting."""
    for field in dataclasses.fields(RunConfig):
        config = dataclasses.replace(RunConfig(task=TASK), **{field.name: object()})
        with pytest.raises(ValueError, match=f"^{field.name} is <object"):
            config.validate()


def test_unknown_key():
    with pytest.raises(ValueError, match=r"unknown setting 'epoch' \(did you mean 'epochs'\?\)"):
        RunConfig.from_dict({"task": TASK, "epoch": 3})
    with pytest.raises(ValueError, match="the settings lack a task"):
        RunConfig.from_dict({})


def test_fingerprint_is_of_what_decides_the_result():
    config = RunConfig(task=TASK)
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        changed = dataclasses.replace(config, **{field.name: (value, "other")})
        same = changed.fingerprint() == config.fingerprint()
        place = ("data_dir", "devices", "nodes", "accelerator", "checkpoint_seconds")
        assert same == (field.name in place)


def test_the_data_folder_is_resolved(tmp_path, monkeypatch):
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    assert RunConfig(task=TASK).resolved() == RunConfig(task=TASK)
    monkeypatch.chdir(tmp_path)
    assert RunConfig(task=TASK, data_dir=".").resolved().data_dir == str(tmp_path)
    monkeypatch.setenv("PRIMAL_ATTENTION_DATA", str(tmp_path))
    assert RunConfig(task=TASK).resolved().data_dir == str(tmp_path)
    with pytest.raises(DataError, match="expected an existing folder"):
        RunConfig(task=TASK, data_dir="missing").resolved()


def test_options_join_those_of_primal_layers():
    config = RunConfig(
        task="uea/BasicMotions",
        attention=("softmax", "primal"),
        options={"softmax": {"bias": False}, "primal": {"feature_map": "exp"}},
    )
    config.validate()
    found = config.attention_options()
    assert found["softmax"] == {"bias": False}
    assert found["primal"]["feature_map"] == "exp"
    assert found["primal"]["rank"] == config.rank


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sofmax": {}}, "a key of options is 'sofmax'"),
        (
            {"softmax": {"bais": False}},
            r"option of attention 'softmax': 'bais' \(did you mean 'bias'",
        ),
        ({"softmax": {"causal": True}}, "option of attention 'softmax': 'causal'"),
        ({"primal": {"rank": 3}}, "option of attention 'primal': 'rank'"),
        ({"softmax": 3}, r"options\['softmax'\] is 3"),
        ([1], r"options is \[1\]"),
    ],
)
def test_wrong_options(options, message):
    config = RunConfig(task="uea/BasicMotions", attention=("softmax", "primal"), options=options)
    with pytest.raises(ValueError, match=message):
        config.validate()


def test_attention_options_are_those_of_primal_layers():
    assert RunConfig(task=TASK, attention=("softmax",)).attention_options() == {}
    options = RunConfig(task=TASK, rank=7, weights="tied").attention_options()
    assert options["primal"]["rank"] == 7
    assert options["primal"]["weights"] == "tied"


def test_the_fingerprint_leaves_out_defaults():
    """A later version with more settings must agree with what an earlier one has begun."""
    config = RunConfig(task="uea/BasicMotions", width=64)
    fewer = {"task": "uea/BasicMotions", "width": 64}
    digest = hashlib.sha256(json.dumps(fewer, sort_keys=True).encode()).hexdigest()
    assert config.fingerprint() == digest


def test_feature_maps_are_those_of_the_theory():
    from primal_attention.tasks import settings
    from primal_attention.theory import features

    assert settings.FEATURE_MAPS == features.FEATURE_MAPS


PUBLISHED = {
    "score_dropout", "projection_start", "direction_start", "ksvd_square", "padding", "pooled",
    "token_start", "selection_epochs",
}  # fmt: skip


def test_settings_of_an_earlier_version_keep_their_meaning():
    """A config.json without the published pieces is our model, and its fingerprint stays."""
    config = RunConfig(task="uea/JapaneseVowels", recipe="paper", normalise="none")
    stored = {k: v for k, v in config.to_dict().items() if k not in PUBLISHED}
    again = RunConfig.from_dict(stored)
    assert again == config
    assert not PUBLISHED & again.decisive().keys()
    assert "dropout" not in again.primal_options()


@pytest.mark.parametrize(
    ("name", "whole", "other"), [("square", "batch", "sample"), ("growth", "log", "square")]
)
def test_what_needs_the_whole_batch(name, whole, other):
    config = RunConfig(task="uea/JapaneseVowels", **{f"ksvd_{name}": whole}, devices=2)
    message = f"ksvd_{name} is '{whole}' with 2 processes; expected '{other}', or one process"
    with pytest.raises(ValueError, match=message):
        config.validate()


def test_a_loss_that_begins_large_grows_by_its_logarithm():
    """In new runs with positive features, unless something else was asked for."""
    from primal_attention.train.config import settings_for

    def growth(**given):
        return settings_for("uea/JapaneseVowels", ("primal",), **given).ksvd_growth

    assert growth(feature_map="cosine") == "square"
    assert growth() == growth(feature_map="elu") == "log"
    assert growth(feature_map="elu", ksvd_growth="square") == "square"
    assert growth(feature_map="elu", eta=0.0) == growth(feature_map="elu", devices=2) == "square"
