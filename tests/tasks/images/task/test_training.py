"""Runs of the real engine on scikit-learn's digits."""

import json

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lightning_fabric")
from primal_attention.cli.settings import resolve
from primal_attention.train import Observer, read_metrics, resume, train

SMALL = {"width": 16, "heads": 2, "feedforward": 16, "rank": 4, "batch_size": 16}
SMALL |= {"epochs": 2, "epoch_steps": 3, "warmup_steps": 1, "accelerator": "cpu"}
PLUS = ("softmax", "primal")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class StopAt(Observer):
    def __init__(self, step):
        self.at = step

    def step(self, event):
        if event.step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("attention", [("softmax", "softmax"), PLUS])
def test_a_run_trains_and_is_tested(attention, tmp_path):
    result = train(resolve("images/digits", attention, **SMALL), root=tmp_path)
    assert 0 <= result.accuracy <= 1
    assert sum(map(sum, result.confusion)) == 360
    steps = [line for line in read_metrics(result.run) if line["kind"] == "step"]
    assert len(steps) == 6
    assert all((line["ksvd_loss"] is None) == ("primal" not in attention) for line in steps)


def outcome(run):
    last = sorted((run / "checkpoints").iterdir())[-1]
    metrics = [{k: v for k, v in line.items() if k != "seconds"} for line in read_metrics(run)]
    accuracy = json.loads((run / "result.json").read_text())["accuracy"]
    return (last / "weights.safetensors").read_bytes(), metrics, accuracy


def test_an_augmented_run_resumes_to_the_last_bit(tmp_path):
    pytest.importorskip("PIL")
    changes = {"augment": "deit", "mixup": 0.8, "ema": 0.9, "dropout": 0.1}
    config = resolve("images/digits", PLUS, **(SMALL | changes))
    whole = train(config, root=tmp_path, name="whole").run
    with pytest.raises(KeyboardInterrupt):
        train(config, root=tmp_path, name="cut", observer=StopAt(4))
    resume(tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(whole)


def test_a_folder_trains_with_the_recipe_of_deit(image_folder, tmp_path):
    pytest.importorskip("PIL")
    small = SMALL | {"batch_size": 4, "epochs": 1, "epoch_steps": 1, "validation_fraction": 0.5}
    root = image_folder(train=2, val=1)
    config = resolve("images/folder", PLUS, "deit", **small, data_dir=str(root))
    result = train(config, root=tmp_path / "runs")
    assert result.classes == ("cat", "dog")
    assert sum(map(sum, result.confusion)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("attention", [("softmax",) * 3, ("softmax", "softmax", "primal")])
def test_the_default_recipe_learns_the_digits(attention, tmp_path):
    result = train(resolve("images/digits", attention), root=tmp_path)
    assert result.accuracy > 0.75
