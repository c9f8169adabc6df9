"""Options: all of RunConfig's fields, what wins over what, and commands that are printed."""

import dataclasses
import inspect
import shlex

import pytest

from primal_attention.cli.app import train
from primal_attention.cli.options import given
from primal_attention.cli.settings import UsageError, command_for, resolve
from primal_attention.grammar import parse_attention, parse_options
from primal_attention.train import RunConfig
from primal_attention.train.config import KINDS, help_of, panels


def test_every_setting_has_an_option():
    fields = {field.name for kind in KINDS for field in dataclasses.fields(kind)}
    options = set(inspect.signature(train).parameters)
    assert fields - {"options"} <= options  # it is --option, once for each
    in_panels = [name for panel in panels(*KINDS).values() for name in panel]
    assert set(in_panels) <= fields
    assert len(set(in_panels)) == len(in_panels)


def test_every_setting_has_one_line_of_help():
    for kind in KINDS:
        for field in dataclasses.fields(kind):
            if field.name != "task":
                assert help_of(kind, field.name).endswith((".", "..."))


def test_a_flag_turns_its_setting_round():
    assert given({"conditioned": True, "stream": None}) == {"conditioned": False}
    assert given({"conditioned": False, "stream": True}) == {"conditioned": True, "stream": True}
    config = resolve("rl/hopper-medium", ("softmax", "primal"), conditioned=False, devices=2)
    words = command_for(config)
    assert words == (
        "primal train rl/hopper-medium --attention softmax,primal --devices 2 --cloning"
    )


def test_clip_may_be_none():
    assert given({"clip": "none", "width": 8, "lr": None}) == {"clip": None, "width": 8}
    assert given({"clip": "2.5"}) == {"clip": 2.5}
    with pytest.raises(ValueError, match="--clip is 'much'"):
        given({"clip": "much"})


def test_options_win_over_the_recipe_and_the_recipe_over_the_defaults():
    both = ("primal", "primal")
    plain, paper = (
        RunConfig(task="uea/JapaneseVowels"),
        resolve("uea/JapaneseVowels", both, "paper"),
    )
    assert resolve("uea/JapaneseVowels", both, "transformer") == dataclasses.replace(
        plain, recipe="transformer"
    )
    assert (paper.width, paper.rank, paper.eta, paper.head) == (512, 40, 0.5, "flatten")
    chosen = resolve("uea/JapaneseVowels", both, "paper", width=64, eta=0.0)
    assert (chosen.width, chosen.rank, chosen.eta, chosen.recipe) == (64, 40, 0.0, "paper")


def test_the_printed_command_gives_the_same_settings(primal, tmp_path):
    config = resolve(
        "uea/JapaneseVowels", ("softmax", "primal"), "paper",
        clip=None, width=16, protocol="paper", data_dir=str(tmp_path / "a b"),
    )  # fmt: skip
    words = shlex.split(command_for(config, seeds="0-4"))
    assert words[:3] == ["primal", "train", "uea/JapaneseVowels"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options.pop("--seeds") == "0-4"
    assert options.pop("--attention") == "softmax,primal"
    assert options.pop("--clip") == "none"
    assert options.pop("--data-dir") == str(tmp_path / "a b")
    assert options == {"--recipe": "paper", "--width": "16", "--protocol": "paper"}


def test_the_printed_command_has_the_options_of_attentions():
    options = {"softmax": {"bias": False}}
    config = resolve("uea/JapaneseVowels", ("softmax", "primal"), options=options)
    words = shlex.split(command_for(config))
    assert parse_options([words[words.index("--option") + 1]]) == options


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_printed_command_has_the_layers(layers):
    config = resolve("uea/JapaneseVowels", ("primal",) * layers)
    for rival in (None, ("softmax",) * layers):
        words = shlex.split(command_for(config, rival))
        options = dict(zip(words[3::2], words[4::2], strict=True))
        count = int(options["--layers"]) if "--layers" in options else None
        found = parse_attention(options["--attention"], count)
        assert found == (rival or config.attention)


def test_the_printed_command_of_a_rival_has_its_options_alone():
    options = {"softmax": {"bias": False}, "primal": {"bias": False}}
    config = resolve("uea/JapaneseVowels", ("softmax", "primal"), options=options)
    command = command_for(config, ("softmax", "softmax"))
    assert "softmax.bias=false" in command
    assert "primal.bias" not in command


def test_settings_that_cannot_be_are_usage_errors():
    with pytest.raises(UsageError, match="heads is 4") as raised:
        resolve("uea/JapaneseVowels", ("primal",), width=30)
    assert raised.value.exit_code == 2


def test_a_recipe_is_for_every_task_that_has_some(primal, tmp_path):
    refused = primal("train", "lm/text", "--data", __file__, "--recipe", "papr")
    assert "unknown recipe of task 'lm/text': 'papr' (did you mean 'paper'?)" in refused.err
    known = primal("train", "lm/wikitext103", "--attention", "softmax*5,primal", "--recipe",
                   "paper", "--data-dir", tmp_path)  # fmt: skip
    assert "the train split of lm/wikitext103 is not here" in known.err
