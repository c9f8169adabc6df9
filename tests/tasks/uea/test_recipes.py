"""The settings of the paper, by set and by model."""

import dataclasses

import pytest

from primal_attention.tasks import available_tasks, get_task
from primal_attention.train.config import RunConfig

PRIMALFORMER = ("primal", "primal")
PRIMAL_TRANS = ("softmax", "primal")
TRANSFORMER = ("softmax", "softmax")
PAPER = [name for name in available_tasks() if name.startswith("uea/") and "Basic" not in name]


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("attention", [PRIMALFORMER, PRIMAL_TRANS, TRANSFORMER])
def test_recipes_are_settings_of_a_run(name, attention):
    task = get_task(name)
    for recipe in task.recipes:
        fields = task.recipe(recipe, attention)
        config = RunConfig(task=name, recipe=recipe, attention=attention, **fields)
        config.validate()
        assert dataclasses.asdict(config).items() >= fields.items()


@pytest.mark.parametrize(
    ("name", "primalformer", "primal_trans"),
    [
        ("JapaneseVowels", (40, 0.5), (30, 0.2)),
        ("Handwriting", (30, 0.2), (20, 0.5)),
        ("PEMS-SF", (40, 0.1), (40, 0.0)),
        ("SelfRegulationSCP2", (20, 0.0), (20, 0.2)),
    ],
)
def test_rank_and_eta_follow_the_model(name, primalformer, primal_trans):
    task = get_task(f"uea/{name}")
    for attention, expected in ((PRIMALFORMER, primalformer), (PRIMAL_TRANS, primal_trans)):
        fields = task.recipe("paper", attention)
        assert (fields["rank"], fields["eta"]) == expected
    fields = task.recipe("paper", TRANSFORMER)
    assert fields["eta"] == 0.0
    assert "rank" not in fields


def test_other_depths_and_backbones():
    task = get_task("uea/JapaneseVowels")
    assert task.recipe("paper", ("primal",)) == task.recipe("paper", PRIMALFORMER)
    deep = ("softmax", "performer", "softmax", "primal")
    assert task.recipe("paper", deep) == task.recipe("paper", PRIMAL_TRANS)


@pytest.mark.parametrize("attention", [("primal", "softmax"), ("primal", "softmax", "primal")])
def test_models_that_the_paper_does_not_have(attention):
    message = f"the attentions are {', '.join(attention)}; expected for the recipe 'paper' all prim"
    with pytest.raises(ValueError, match=message):
        get_task("uea/JapaneseVowels").recipe("paper", attention)


def test_settings_that_differ_from_set_to_set():
    def sets_with(key, value):
        paper = {name: get_task(name).recipe("paper", TRANSFORMER)[key] for name in PAPER}
        return {name.removeprefix("uea/") for name, found in paper.items() if found == value}

    assert sets_with("optimizer", "adam") == {"SpokenArabicDigits"}
    assert sets_with("epochs", 400) == {"PEMS-SF"}
    assert sets_with("rank_multi", 5) == {
        "FaceDetection",
        "Handwriting",
        "JapaneseVowels",
        "PEMS-SF",
        "SpokenArabicDigits",
    }
    for key, value in {"optimizer": "radam", "epochs": 100}.items():
        assert len(sets_with(key, value)) == 9
    for key, value in {
        "width": 512,
        "head": "flatten",
        "normalise": "channel",
        "clip": 4.0,
    }.items():
        assert len(sets_with(key, value)) == 10


def test_recipes_are_copies():
    task = get_task("uea/JapaneseVowels")
    task.recipe("paper", PRIMALFORMER)["width"] = 1
    assert task.recipe("paper", PRIMALFORMER)["width"] == 512


def test_a_set_outside_the_paper():
    with pytest.raises(ValueError, match=r"unknown recipe of task 'uea/BasicMotions': 'paper'; ex"):
        get_task("uea/BasicMotions").recipe("paper", PRIMALFORMER)
