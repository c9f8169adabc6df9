import numpy as np
import pytest

from primal_attention.cli.settings import resolve
from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.images import image_tasks


def test_digits_are_split_in_order():
    sklearn = pytest.importorskip("sklearn.datasets")
    sets = get_task("images/digits").load()
    assert (len(sets["train"]), len(sets["test"])) == (1437, 360)
    images = np.concatenate([s.images for s in sets.values()])
    labels = np.concatenate([s.labels for s in sets.values()])
    digits = sklearn.load_digits()
    assert np.array_equal(labels, digits.target)
    for channel in range(3):
        assert np.array_equal(images[..., channel], digits.images * 15)
    assert get_task("images/digits").status().complete


def test_cifar10_comes_from_its_batches(tmp_path):
    rng = np.random.default_rng(0)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)]:
        records = rng.integers(0, 10, (4, 3073), dtype=np.uint8)
        (tmp_path / name).write_bytes(records.tobytes())
    task = get_task("images/cifar10")
    train = task.load(tmp_path, splits=("train",))["train"]
    assert train.images.shape == (20, 32, 32, 3)
    assert np.array_equal(train.images[-1, :, :, 2].ravel(), records[-1, 2049:])
    assert train.labels[-1] == records[-1, 0]
    assert task.status(tmp_path).missing == ("test",)
    with pytest.raises(DataError, match=r"test split of images/cifar10 is not here; .*cifar10"):
        task.load(tmp_path)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="unknown split of images/digits: 'tset'"):
        get_task("images/digits").load(splits=("tset",))


@pytest.mark.parametrize(
    ("task", "recipe"), [(task.name, recipe) for task in image_tasks() for recipe in task.recipes]
)
def test_recipes_are_settings_of_runs(task, recipe):
    config = resolve(task, ("softmax", "primal"), recipe)
    assert config.norm == "pre"
    size, patch = get_task(task).size, get_task(task).patch
    assert size % patch == 0


def test_the_recipe_of_deit():
    config = resolve("images/folder", ("softmax",) * 11 + ("primal",), "deit")
    expected = {
        "width": 384, "heads": 6, "feedforward": 1536, "weights": "data", "rank": 32, "eta": 0.05,
        "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.05, "schedule": "cosine",
        "batch_size": 1024, "epochs": 300, "label_smoothing": 0.1, "augment": "deit", "mixup": 0.8,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected
