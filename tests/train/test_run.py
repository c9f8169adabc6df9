"""Runs in their folders: protocols, interruption and resumption, failures."""

import dataclasses
import errno
import fcntl
import json
import os
import resource
import signal

import numpy as np
import pytest
import torch

from primal_attention.report.runs import read_run
from primal_attention.tasks import DataError
from primal_attention.tasks.classification import objective
from primal_attention.train import (
    NotFiniteError,
    Observer,
    RunConfig,
    RunError,
    checkpoint,
    read_metrics,
    resume,
    train,
    train_seeds,
)
from primal_attention.train.config import settings_for
from primal_attention.train.session import asked_by_signals
from primal_attention.train.sweep.trial import curve


def status(run):
    return json.loads((run / "status.json").read_text())


# -- what is told before there is one ----------------------------------------------------------


@pytest.mark.parametrize("rows", [False, True])
def test_a_wrong_test_set_of_ones_own_is_told_before_the_training(rows, sensors, people, tmp_path):
    data, right = (people, ",yes\n") if rows else (sensors, ",worn\n")
    test = tmp_path / "test.csv"
    test.write_text(data.read_text().replace(right, ",perhaps\n"))
    where = {"data": str(data), "test": str(test), "target": "out" if rows else "state"}
    where |= {"id": "name"} if rows else {"id": "machine", "time": "at"}
    config = settings_for("table/csv" if rows else "", **where)
    with pytest.raises(DataError, match=r"test\.csv.*'perhaps'"):
        train(config, root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


# -- what a run leaves -----------------------------------------------------------------------------


def test_folder(config, tmp_path):
    settings = config()
    result = train(settings, root=tmp_path)
    assert result.run == tmp_path / "tests-vowels-primal+primal-001"
    names = {path.name for path in result.run.iterdir()}
    assert names == {
        "config.json", "environment.json", "data.json", "status.json", "metrics.jsonl",
        "checkpoints", "best.safetensors", "best.json", "result.json", ".lock", "reader.json",
    }  # fmt: skip
    stored = RunConfig.from_dict(json.loads((result.run / "config.json").read_text()))
    assert stored == settings.resolved()
    written = json.loads((result.run / "environment.json").read_text())["torch"]
    assert torch.__version__.startswith(written)
    assert status(result.run) == {"status": "finished", "reason": None}
    assert (
        type(result).from_dict(result.run, json.loads((result.run / "result.json").read_text()))
        == result
    )
    assert np.sum(result.confusion) == 62
    assert result.accuracy == np.trace(result.confusion) / 62
    assert train(settings, root=tmp_path).run.name.endswith("-002")


def test_metrics(undisturbed):
    lines = read_metrics(undisturbed)
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert [line["step"] for line in epochs] == [4, 8, 12]
    for epoch in epochs:
        own = [line for line in steps if line["epoch"] == epoch["epoch"]]
        cases = [10, 10, 10, 6]
        for name in ("task_loss", "ksvd_loss"):
            mean = np.average([line[name] for line in own], weights=cases)
            assert epoch[name] == pytest.approx(mean)
    assert epochs[-1]["task_loss"] < epochs[0]["task_loss"]


def test_seed_decides(config, tmp_path, outcome, undisturbed):
    assert outcome(train(config(), root=tmp_path).run) == outcome(undisturbed)
    other = outcome(train(config(seed=1), root=tmp_path).run)
    assert other["weights"] != outcome(undisturbed)["weights"]


def test_global_random_state_is_left_alone(config, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(config(epochs=1), root=tmp_path)
    assert torch.equal(torch.rand(3), expected)


# -- protocols -------------------------------------------------------------------------------------


def test_holdout_reads_the_test_set_once(config, tmp_path, task):
    result = train(config(), root=tmp_path)
    assert task.loads == [("train",), ("train", "test")]
    assert result.label == "test accuracy of the epoch with the best validation accuracy"
    epochs = [line for line in read_metrics(result.run) if line["kind"] == "epoch"]
    assert {line["split"] for line in epochs} == {"validation"}
    best = max(epochs, key=lambda line: (line["accuracy"], -line["loss"]))
    assert result.epoch == best["epoch"]
    assert result.validation_accuracy == best["accuracy"]
    assert result.last_accuracy == epochs[-1]["accuracy"]


def test_holdout_without_a_test_set(config, tmp_path, task, monkeypatch):
    monkeypatch.setattr(type(task), "has_test", False)
    result = train(config(), root=tmp_path)
    assert task.loads == [("train",)]
    assert result.label == "validation accuracy; no test set here"
    assert result.accuracy == result.validation_accuracy
    assert np.sum(result.confusion) == 9


def test_holdout_with_the_last_epoch(config, tmp_path):
    result = train(config(keep="last"), root=tmp_path)
    assert (result.label, result.epoch) == ("test accuracy of the last epoch", config().epochs)
    assert result.validation_accuracy == result.last_accuracy


def test_paper_protocol(config, tmp_path, task):
    result = train(config(protocol="paper", keep="last"), root=tmp_path)  # the best all the same
    assert task.loads == [("train", "test")]
    assert result.label == "best TEST epoch: selected on the test set"
    epochs = [line for line in read_metrics(result.run) if line["kind"] == "epoch"]
    assert {line["split"] for line in epochs} == {"test"}
    assert result.accuracy == max(line["accuracy"] for line in epochs)
    assert result.last_accuracy == epochs[-1]["accuracy"]
    assert result.validation_accuracy is None
    lengths = {name: s.lengths for name, s in task.load().items()}
    assert result.cut == (lengths["test"] > lengths["train"].max()).sum() > 0


def test_epochs_that_may_not_be_chosen_are_not_evaluated(config, tmp_path):
    """The test set is looked at where the published code does, and nothing else changes."""
    some = config(protocol="paper", epochs=5, selection_epochs="paper")
    every = dataclasses.replace(some, selection_epochs="every")
    results = [train(one, root=tmp_path, name=one.selection_epochs) for one in (some, every)]
    few, all_of_them = (
        [line for line in read_metrics(one.run) if line["kind"] == "epoch"] for one in results
    )
    assert [line["epoch"] for line in few if "accuracy" in line] == [1, 2, 4, 5]
    for line, other in zip(few, all_of_them, strict=True):
        timed = {"seconds": None, "primal_layers": None}
        assert (line | timed).items() <= (other | timed).items()
    assert results[0].accuracy == max(line["accuracy"] for line in few if "accuracy" in line)
    along = curve(some, results[0].run)
    assert along[2] == along[1] == few[1]["accuracy"]  # the third was not looked at
    assert read_run(results[0].run).values.keys() == {1, 2, 4, 5}


def test_the_chosen_epoch_is_reported(config, tmp_path, monkeypatch, outcome):
    real = objective.evaluate

    def run(*accuracies):
        left = iter(accuracies)
        stated = lambda *a: dataclasses.replace(real(*a), accuracy=next(left, 0.5))  # noqa: E731
        monkeypatch.setattr(objective, "evaluate", stated)
        return train(config(epochs=len(accuracies)), root=tmp_path)

    two, three = run(0.1, 0.9), run(0.1, 0.9, 0.5)
    assert two.epoch == three.epoch == 2
    assert three.validation_accuracy == 0.9
    assert three.last_accuracy == 0.5
    assert outcome(three.run)["best"] == outcome(two.run)["weights"]
    assert outcome(three.run)["best"] != outcome(three.run)["weights"]
    assert three.confusion == two.confusion


def test_missing_data_fails(tmp_path):
    with pytest.raises(DataError, match="not here"):
        train(RunConfig(task="uea/FaceDetection"), root=tmp_path)


# -- interruption and resumption -------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 6, 8, 12])
def test_resumed_is_undisturbed(step, config, tmp_path, stop_at, outcome, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="stopped", observer=stop_at(step))
    run = tmp_path / "stopped"
    assert status(run)["status"] == "interrupted"
    assert [p.name for p in (run / "checkpoints").iterdir()] == [f"step-{step:08d}"]
    assert not (run / "result.json").exists()
    resume(run)
    assert outcome(run) == outcome(undisturbed)
    assert status(run)["status"] == "finished"


def test_interrupted_many_times(config, tmp_path, stop_at, outcome, undisturbed):
    run = tmp_path / "run"
    changes = {"protocol": "paper", "attention": ("softmax", "primal"), "schedule": "cosine"}
    changes |= {"warmup_steps": 3, "clip": 0.5, "optimizer": "adamw", "weight_decay": 0.1}
    with pytest.raises(KeyboardInterrupt):
        train(config(**changes), root=tmp_path, name="run", observer=stop_at(2))
    for step in (3, 5, 11):
        with pytest.raises(KeyboardInterrupt):
            resume(run, observer=stop_at(step))
    resume(run)
    assert outcome(run) == outcome(train(config(**changes), root=tmp_path).run)


@pytest.mark.parametrize("epoch_steps", [2, 7])
def test_epochs_of_some_steps(epoch_steps, config, tmp_path, stop_at, outcome):
    """Shorter and longer than the pass over the training set, of four steps."""
    settings = config(epoch_steps=epoch_steps)
    done = train(settings, root=tmp_path, name="whole").run
    metrics = read_metrics(done)
    assert sum(line["kind"] == "step" for line in metrics) == 3 * epoch_steps
    assert [line["step"] for line in metrics if line["kind"] == "epoch"] == [
        epoch_steps, 2 * epoch_steps, 3 * epoch_steps,
    ]  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        train(settings, root=tmp_path, name="stopped", observer=stop_at(5))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(done)


def test_averaged_weights_resume(config, tmp_path, stop_at, outcome):
    settings = config(ema=0.9, label_smoothing=0.1)
    done = train(settings, root=tmp_path, name="whole").run
    with pytest.raises(KeyboardInterrupt):
        train(settings, root=tmp_path, name="stopped", observer=stop_at(6))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(done)


def test_interrupted_after_an_epoch(config, tmp_path, outcome, undisturbed):
    class StopAfterEpoch(Observer):
        def epoch(self, event):
            if event.epoch == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=StopAfterEpoch())
    assert not (tmp_path / "run" / "result.json").exists()
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


@pytest.mark.parametrize(
    "precision",
    ["bf16-true", *(pytest.param(p, marks=pytest.mark.slow) for p in ("bf16-mixed", "64-true"))],
)
def test_every_precision_resumes(precision, config, tmp_path, stop_at, outcome):
    changes = {"precision": precision, "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        train(config(**changes), root=tmp_path, name="run", observer=stop_at(5))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(train(config(**changes), root=tmp_path).run)


def test_a_finished_run_gives_its_result(undisturbed, task):
    result = resume(undisturbed)
    assert result.run == undisturbed
    assert result.status == "finished"
    assert task.loads == []


@pytest.mark.parametrize("seeds", [False, True])
def test_killed_between_the_result_and_the_status(seeds, config, tmp_path):
    if seeds:
        train_seeds(config(), [0], root=tmp_path, name="seeds")
    else:
        train(config(), root=tmp_path, name="run")
    run = tmp_path / ("seeds/seed-0" if seeds else "run")
    (run / "status.json").write_text('{"status": "running", "reason": null}')
    (run / ".tmp-status.json-1").write_text('{"sta')
    resume(run.parent if seeds else run)
    assert status(run) == {"status": "finished", "reason": None}
    assert not list(run.glob(".tmp-*"))


def test_best_weights_may_be_ahead_of_the_checkpoint(
    config, tmp_path, stop_at, outcome, undisturbed
):
    """As after a crash between the two: written for a later epoch than the checkpoint knows."""
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=stop_at(5))
    for name in ("best.safetensors", "best.json"):
        (tmp_path / "run" / name).write_bytes((undisturbed / name).read_bytes())
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_the_reported_epoch_is_that_of_the_weights(config, tmp_path, monkeypatch):
    """Best weights are ahead of the checkpoint, and elsewhere their epoch is not the best again."""
    real_save, real_evaluate = checkpoint.save, objective.evaluate
    first = {}
    accuracies = iter([0.5, 0.6])

    def rising(*arguments):
        return dataclasses.replace(real_evaluate(*arguments), accuracy=next(accuracies, 0.5))

    def full_disk(folder, step, content):
        best = content.state["progress"]["best"]
        if best and best["epoch"] == 2:
            raise RunError("no space left")
        if best:
            first["best"] = (folder.parent / "best.safetensors").read_bytes()
        real_save(folder, step, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", full_disk)
        patch.setattr(objective, "evaluate", rising)
        with pytest.raises(RunError, match="no space left"):
            train(config(checkpoint_seconds=0), root=tmp_path, name="run")
    run = tmp_path / "run"
    assert (run / "best.safetensors").read_bytes() != first["best"]

    def level(*arguments):
        return dataclasses.replace(real_evaluate(*arguments), accuracy=0.4)

    monkeypatch.setattr(objective, "evaluate", level)
    assert resume(run).epoch == 1
    assert json.loads((run / "best.json").read_text())["epoch"] == 1
    assert (run / "best.safetensors").read_bytes() == first["best"]


def forget_best(run):
    """Make the checkpoints those of an earlier version."""
    for path in (run / "checkpoints").iterdir():
        (path / "best.safetensors").unlink()
        state = json.loads((path / "state.json").read_text())
        del state["files"]["best.safetensors"]
        (path / "state.json").write_text(json.dumps(state))


def test_checkpoints_of_an_earlier_version(config, tmp_path, stop_at, outcome, undisturbed):
    """Their best weights are beside them, or are those of an epoch that comes again."""
    for name in ("as it was", "ahead"):
        run = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            train(config(), root=tmp_path, name=name, observer=stop_at(5))
        forget_best(run)
        if name == "ahead":
            for file in ("best.safetensors", "best.json"):
                (run / file).write_bytes((undisturbed / file).read_bytes())
        resume(run)
        assert outcome(run) == outcome(undisturbed)


def test_weights_of_another_epoch_are_never_reported(config, tmp_path, stop_at, monkeypatch):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=stop_at(5))
    forget_best(run)
    (run / "best.json").write_text(json.dumps({"epoch": 2}))
    real = objective.evaluate
    worst = {"accuracy": 0.0, "loss": 1e9}
    monkeypatch.setattr(objective, "evaluate", lambda *a: dataclasses.replace(real(*a), **worst))
    with pytest.raises(RunError, match=r"has lost the weights of its best epoch, 1; delete"):
        resume(run)
    assert not (run / "result.json").exists()


def test_a_damaged_checkpoint_is_passed_over(config, tmp_path, stop_at, outcome, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        train(config(checkpoint_seconds=0), root=tmp_path, name="run", observer=stop_at(6))
    before, last = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert (before.name, last.name) == ("step-00000005", "step-00000006")
    data = bytearray((last / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (last / "weights.safetensors").write_bytes(data)
    with open(tmp_path / "run" / "metrics.jsonl", "a") as metrics:
        metrics.write('{"kind": "step", "epo')  # and a line that is half written
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_changed_data_or_settings_are_refused(config, tmp_path, stop_at, task, monkeypatch):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=stop_at(2))
    with monkeypatch.context() as patch:
        patch.setattr(type(task), "first", 1)
        with pytest.raises(RunError, match="the data of tests/vowels is not what"):
            resume(run)
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(settings | {"lr": 0.02}))
    with pytest.raises(RunError, match=r"config.json was changed after the run began"):
        resume(run)
    # where it runs may change
    (run / "config.json").write_text(json.dumps(settings | {"checkpoint_seconds": 1.0}))
    assert resume(run).status == "finished"


def test_a_second_interrupt_is_at_once():
    asked = []
    before = signal.getsignal(signal.SIGINT)
    with asked_by_signals(lambda: asked.append(1)):
        signal.raise_signal(signal.SIGINT)
        assert asked == [1]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# -- observers -------------------------------------------------------------------------------------


def test_observer_is_told_everything(config, tmp_path):
    told = []

    class Listener(Observer):
        def run_started(self, start):
            told.append(("start", start.step, start.steps, "36 series, 4 steps" in start.opening))

        def step(self, event):
            told.append(("step", event.step, event.epoch, event.batch, event.batches))

        def epoch(self, event):
            told.append(("epoch", event.epoch, event.best_epoch))

        def finished(self, result):
            told.append(("finished", result.status))

    train(config(epochs=1), root=tmp_path, observer=Listener())
    steps = [("step", n, 1, n, 4) for n in range(1, 5)]
    assert told == [("start", 0, 4, True), *steps, ("epoch", 1, 1), ("finished", "finished")]


def test_an_interrupt_after_the_end(config, tmp_path):
    class StopAtTheEnd(Observer):
        def finished(self, result):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config(epochs=1), root=tmp_path, name="run", observer=StopAtTheEnd())
    assert status(tmp_path / "run")["status"] == "finished"
    assert resume(tmp_path / "run").status == "finished"


def test_a_broken_observer_does_not_harm_the_run(config, tmp_path, outcome, undisturbed):
    class Broken(Observer):
        def step(self, event):
            raise ZeroDivisionError("mine")

    with pytest.warns(UserWarning, match=r"observer failed in step\(\).*mine"):
        run = train(config(), root=tmp_path, observer=Broken()).run
    assert outcome(run) == outcome(undisturbed)


# -- failures --------------------------------------------------------------------------------------


def test_nothing_happens_before_the_settings_are_valid(config, tmp_path):
    with pytest.raises(ValueError, match="heads is 3"):
        train(config(heads=3), root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_name_is_used_once(undisturbed, config):
    with pytest.raises(RunError, match=r"exists already; continue it with `primal resume "):
        train(config(), root=undisturbed.parent, name=undisturbed.name)


def test_no_run_folder(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no config.json"):
        resume(tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run(config, tmp_path):
    with pytest.raises(NotFiniteError) as caught:
        train(config(lr=1e30, clip=None), root=tmp_path, name="run")
    message = str(caught.value)
    assert message.startswith("training stopped in epoch 1, step ")
    assert "loss is" in message or "gradient is not" in message
    assert status(tmp_path / "run") == {"status": "failed", "reason": message}
    assert not (tmp_path / "run" / "result.json").exists()
    for line in read_metrics(tmp_path / "run"):
        assert np.isfinite(line["task_loss"])


def test_a_run_in_use_is_refused(config, tmp_path, stop_at):
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="run", observer=stop_at(2))
    with open(tmp_path / "run" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is in use by another process"):
            resume(tmp_path / "run")
    assert resume(tmp_path / "run").status == "finished"


def test_a_place_that_cannot_be_written(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot make a run folder in .*: not a directory"):
        train(config(), root=tmp_path / "file" / "runs")


class FailingWrites(Observer):
    """From a step on, files may have 200 bytes more than the metrics: checkpoints do not fit."""

    def __init__(self, step):
        self.at = step

    def step(self, event):
        if event.step == self.at:
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))


@pytest.fixture
def failing_writes():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield FailingWrites
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_checkpoint_that_cannot_be_written(
    config, tmp_path, outcome, undisturbed, failing_writes
):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(
        RunError, match=r"cannot save .*step-00000004: file too large; the .*intact"
    ):
        train(config(checkpoint_seconds=0), root=tmp_path, name="run", observer=failing_writes(4))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == ["step-00000002", "step-00000003"]
    assert status(tmp_path / "run")["status"] == "failed"
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_a_full_disk(config, tmp_path, monkeypatch, outcome, undisturbed):
    real, calls = os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) > 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(RunError, match=r"cannot .*: no space left on device"):
            train(config(checkpoint_seconds=0), root=tmp_path, name="run")
    assert not list((tmp_path / "run").rglob(".tmp-*"))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_without_data_there_is_no_folder(tmp_path):
    """Heartbeat does not come with the package; whatever fails while reading leaves nothing."""
    missing = RunConfig(task="uea/Heartbeat", data_dir=str(tmp_path))
    root = tmp_path / "runs"
    for start in (lambda: train(missing, root=root), lambda: train_seeds(missing, [0], root=root)):
        with pytest.raises(ValueError, match="Heartbeat_TRAIN"):
            start()
    assert not root.exists()


@pytest.mark.parametrize("content", ["[]", '{"task": 3}', "null"])
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_damaged_documents_are_named(name, content, undisturbed, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for file in ("config.json", "result.json"):
        (run / file).write_bytes((undisturbed / file).read_bytes())
    (run / name).write_text(content)
    with pytest.raises(RunError, match=name):
        resume(run)
    (run / "result.json").unlink()
    if name == "config.json":
        with pytest.raises(ValueError, match=r"config.json|task is 3; expected a name"):
            resume(run)


def test_a_closed_terminal_asks_to_stop_unless_that_is_ignored():
    asked = []
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with asked_by_signals(lambda: asked.append(1)):
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked == [1]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with asked_by_signals(lambda: asked.append(2)):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert asked == [1]
