"""Loggers by name: real event files, and runs of Weights & Biases without a network."""

import json
import os

import pytest

from primal_attention.train import Observer, read_metrics, resume, train
from primal_attention.train.loggers import Several, make_loggers


def scalars(folder):
    """{name: {step: value}} as TensorBoard itself reads them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    return {
        name: {one.step: one.value for one in found.Scalars(name)}
        for name in found.Tags()["scalars"]
    }


def test_tensorboard_has_what_the_metrics_have(config, tmp_path):
    pytest.importorskip("tensorboard")
    result = train(config(), root=tmp_path, observer=Several(make_loggers("tensorboard")))
    found = scalars(result.run / "tensorboard")
    lines = read_metrics(result.run)
    for kind in ("step", "epoch"):
        own = [line for line in lines if line["kind"] == kind]
        expected = {line["step"]: pytest.approx(line["task_loss"], rel=1e-6) for line in own}
        assert found[f"{kind}/task_loss"] == expected
    assert "epoch/accuracy" in found
    assert "step/lr" in found


def test_a_resumed_run_has_every_step_once(config, tmp_path, stop_at):
    pytest.importorskip("tensorboard")
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=Several(
            [*make_loggers("tensorboard"), Asking(stop_at(3))]
        ))  # fmt: skip
    resume(tmp_path / "run", observer=Several(make_loggers("tensorboard")))
    found = scalars(tmp_path / "run" / "tensorboard")["step/task_loss"]
    steps = [line["step"] for line in read_metrics(tmp_path / "run") if line["kind"] == "step"]
    assert list(found) == steps


class Asking(Observer):
    """Passes KeyboardInterrupts on, which are no failures."""

    def __init__(self, one):
        self.step = one.step


def test_one_that_fails_does_not_silence_the_others(config, tmp_path):
    class Broken(Observer):
        def step(self, event):
            raise OSError("disk full")

    class Counting(Observer):
        steps = 0

        def step(self, event):
            self.steps += 1

    counting = Counting()
    with pytest.warns(UserWarning, match="Broken failed in step"):
        train(config(), root=tmp_path, observer=Several([Broken(), counting]))
    assert counting.steps > 1


def test_unknown_names():
    with pytest.raises(ValueError, match=r"a logger is 'tensorbord' \(did you mean 'tensorboard'"):
        make_loggers("tensorbord")
    assert make_loggers("") == []


@pytest.mark.slow
def test_wandb_without_a_network(config, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = train(config(), root=tmp_path, observer=Several(make_loggers("wandb")))
    files = [
        os.path.join(place, name)
        for place, _, names in os.walk(result.run / "wandb")
        for name in names
        if name.endswith(".wandb")
    ]
    assert files
    assert os.path.getsize(files[0]) > 0
    assert json.loads((result.run / "status.json").read_text())["status"] == "finished"
