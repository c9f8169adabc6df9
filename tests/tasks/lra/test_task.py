"""The five tasks: names, status, recipes, batches that a model reads."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from primal_attention.models import SequenceClassifier
from primal_attention.tasks import DataError
from primal_attention.tasks.lra import arena_tasks
from primal_attention.tasks.lra.recipes import PLANS
from primal_attention.tasks.tokens import PairData, TokenSet
from primal_attention.train.config import CHOICES, RunConfig

TASKS = arena_tasks()
NAMES = [task.name.removeprefix("lra/") for task in TASKS]
BOTH, LAST = ("primal", "primal"), ("softmax", "primal")


def settings(max_length=None, batching="random"):
    return SimpleNamespace(normalise="none", max_length=max_length, batching=batching)


def random_set(task, cases=6, longest=50):
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, longest, (cases, 2 if task.pairs else 1))
    tokens = rng.integers(0, task.vocabulary, lengths.sum()).astype(np.uint16)
    starts = np.cumsum(lengths.ravel()).reshape(lengths.shape) - lengths
    labels = np.arange(cases) % len(task.classes)
    return TokenSet("some", tokens, starts, lengths, labels, task.classes, task.vocabulary)


def test_names_and_lengths():
    found = {
        n: (t.max_length, t.padded_length, t.vocabulary) for n, t in zip(NAMES, TASKS, strict=True)
    }
    assert found == {
        "listops": (2000, 2048, 16),
        "text": (4000, 4096, 257),
        "retrieval": (4000, 4096, 257),
        "image": (1024, 1024, 256),
        "pathfinder": (1024, 1024, 256),
    }
    for task in TASKS:
        assert task.splits == (
            ("train", "test") if task.name == "lra/text" else ("train", "validation", "test")
        )


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_here(name, task, data):
    status = task(name).status(data)
    assert status.places == {}
    assert status.missing == task(name).splits
    assert f"expected {data}/" in status.how_to_get
    assert "{" not in status.how_to_get.replace("{train,", "").replace("{neg,", "")
    with pytest.raises(DataError, match=f"the train split of lra/{name} is not here; expected"):
        task(name).load(data)
    without = task(name).status()
    assert "<data folder>" in without.how_to_get
    assert "--data-dir" in without.how_to_get


def test_how_to_make_or_fetch(task, data):
    assert "primal data generate listops" in task("listops").status(data).how_to_get
    assert "primal data generate pathfinder" in task("pathfinder").status(data).how_to_get
    assert "primal data get cifar10" in task("image").status(data).how_to_get


def test_unknown_split(task, data):
    with pytest.raises(
        ValueError, match=r"split of lra/text: 'validation'; expected .*train, test"
    ):
        task("text").load(data, splits=["validation"])


def test_status_opens_no_file(task, data, write):
    write(data / "lra" / "listops" / "basic_train.tsv", b"\0 not a set")
    status = task("listops").status(data)
    assert set(status.places) == {"train"}
    assert status.places["train"].endswith("basic_train.tsv")
    assert not status.complete


def test_splits_come_from_one_place(task, data, write):
    write(data / "lra" / "listops" / "basic_train.tsv", "Source\tTarget\n1\t1\n")
    write(data / "lra_release" / "listops-1000" / "basic_test.tsv", "Source\tTarget\n1\t1\n")
    assert set(task("listops").status(data).places) == {"train"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_recipes_are_settings(name, recipe, task):
    fields = task(name).recipe(recipe, BOTH)
    config = RunConfig(task=f"lra/{name}", **fields)
    config.check_settings()
    plan = PLANS[name]
    assert config.epochs * config.epoch_steps == plan.steps
    assert (config.width, config.heads, config.feedforward) == (64, 2, 128)
    assert (config.norm, config.lr, config.schedule) == ("pre", 1e-4, "linear")
    assert config.batching == {"default": "bucket", "paper": "fixed"}[recipe]
    assert config.batching in CHOICES["batching"]


def test_paper_settings(task):
    listops = task("listops")
    assert listops.recipe("paper", BOTH) | {"rank": 20, "eta": 0.1} == listops.recipe("paper", BOTH)
    published = {"pooled": "padded", "token_start": "small", "ksvd_square": "batch"}
    assert listops.recipe("paper", BOTH).items() >= published.items()
    assert not published.keys() & listops.recipe("default", BOTH).keys()
    last = task("text").recipe("paper", LAST)
    assert (last["rank"], last["eta"]) == (30, 0.1)
    assert task("image").recipe("paper", ("softmax", "softmax"))["eta"] == 0.0
    assert "rank" not in listops.recipe("default", BOTH)
    with pytest.raises(ValueError, match="the attentions are primal, softmax; expected"):
        listops.recipe("paper", ("primal", "softmax"))
    with pytest.raises(ValueError, match="unknown recipe of task 'lra/listops': 'papr'"):
        listops.recipe("papr", BOTH)
    assert listops.plan.steps == 5_000


@pytest.mark.parametrize("name", NAMES)
def test_a_model_reads_the_batches(name, task):
    chosen = task(name)
    part = random_set(chosen)
    reader = chosen.reader(part, settings(max_length=40))
    data = reader(part, training=True)
    assert isinstance(data, PairData) == chosen.pairs
    batch = data.__getitems__([0, 3, 5])
    model = SequenceClassifier(
        **reader.shape, attention=("primal",), attention_options={"primal": {"rank": 4}},
        width=16, heads=2, feedforward=16, norm="pre", head="mlp",
    ).eval()  # fmt: skip
    logits = model(batch.inputs, batch.padding)
    assert logits.shape == (3, len(chosen.classes))
    fixed = chosen.reader(part, settings(max_length=40, batching="fixed"))(part)
    padded = fixed.__getitems__([0, 3, 5])
    assert padded.inputs.shape[-1] == 40
    torch.testing.assert_close(model(padded.inputs, padded.padding), logits)


def test_the_benchmarks_lengths(task):
    text = task("text")
    part = random_set(text, cases=3, longest=50)
    long = TokenSet(
        "long", np.ones(9000, dtype=np.uint16), np.array([[0], [10]]), np.array([[10], [8000]]),
        np.array([0, 1]), text.classes, text.vocabulary,
    )  # fmt: skip
    free = text.reader(part, settings())
    assert free.shape == {"classes": 2, "vocabulary": 257, "max_length": 4000, "pairs": False}
    assert free(long).__getitems__([0, 1]).inputs.shape == (2, 4000)
    assert free(long).cut == 1
    fixed = text.reader(part, settings(batching="fixed"))
    batch = fixed(long).__getitems__([1])
    assert batch.inputs.shape == (1, 4096)
    assert int((~batch.padding).sum()) == 4000
    assert fixed.shape["max_length"] == 4096
