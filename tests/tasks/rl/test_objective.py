"""Runs that learn to act: folders, resume to the last bit, seeds, refusals."""

import dataclasses
import json
import signal

import pytest
import torch

from primal_attention.runs.errors import NotFiniteError, RunError
from primal_attention.train import (
    DecisionConfig,
    Observer,
    read_metrics,
    resume,
    train,
    train_seeds,
)
from primal_attention.train.checkpoint import tensors_from_bytes
from primal_attention.train.session import Session

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("h5py")

from primal_attention.tasks import DataError
from primal_attention.tasks.rl import environments
from primal_attention.tasks.rl.agents import make_agent
from primal_attention.tasks.rl.collect import collect
from primal_attention.tasks.rl.judge import evaluate
from primal_attention.tasks.rl.objective import trained_model
from primal_attention.tasks.rl.sets import RLTask, get_rl_task

TASK = get_rl_task("rl/invertedpendulum-medium-replay")
SMALL = {
    "attention": ("softmax", "primal"), "rank": 4, "width": 8, "heads": 2, "feedforward": 16,
    "context": 4, "batch_size": 8, "epochs": 2, "epoch_steps": 4, "episodes": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    collect(TASK, path, episodes=12, form="d4rl")
    return path


@pytest.fixture
def config(folder):
    def make(**changes):
        return DecisionConfig(task=TASK.name, data_dir=str(folder), **(SMALL | changes))

    return make


class Interrupt(Observer):
    def __init__(self, step):
        self.at = step

    def step(self, event):
        if event.step == self.at:
            raise KeyboardInterrupt


def test_a_run_and_its_folder(config, tmp_path):
    result = train(config(), root=tmp_path)
    run = result.run
    assert run.name == "rl-invertedpendulum-medium-replay-softmax+primal-001"
    expected = {"config.json", "environment.json", "data.json", "status.json", "metrics.jsonl"}
    expected |= {"checkpoints", "last.safetensors", "result.json"}
    assert {p.name for p in run.iterdir() if not p.name.startswith(".")} == expected
    assert json.loads((run / "status.json").read_text())["status"] == "finished"
    metrics = read_metrics(run)
    assert [m["kind"] for m in metrics] == (["step"] * 4 + ["epoch"]) * 2
    layers = [m["primal_layers"] for m in metrics if m["kind"] == "epoch"]
    assert [[len(one["objective"]) for one in epoch.values()] for epoch in layers] == [[2], [2]]
    assert all(m["ksvd_loss"] > 0 for m in metrics)
    assert len(result.returns) == 2
    assert result.best_decile == pytest.approx(TASK.episodes(config().data_dir).best_decile())
    assert resume(run) == result


@pytest.mark.parametrize("step", [1, 4, 6])
def test_resumed_to_the_last_bit(config, tmp_path, step):
    whole = train(config(), root=tmp_path, name="whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="cut", observer=Interrupt(step))
    cut = tmp_path / "cut"
    assert json.loads((cut / "status.json").read_text())["status"] == "interrupted"
    resumed = resume(cut)
    for file in ("last.safetensors", "metrics.jsonl"):
        assert (cut / file).read_bytes() == (whole.run / file).read_bytes()
    assert resumed.returns == whole.returns


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [25, 60, 90])
def test_killed_and_resumed(config, start, tmp_path, kill_at):
    whole = train(config(), root=tmp_path, name="whole").run
    run = tmp_path / "run"
    process = start(run, config(checkpoint_seconds=0.0).to_dict(), kill_at)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    resume(run)
    for file in ("last.safetensors", "metrics.jsonl"):
        assert (run / file).read_bytes() == (whole / file).read_bytes()


OLD_PROGRESS = ("step", "task_sum", "ksvd_sum", "seconds")
GAINED = ("ema", "precision", "devices", "nodes")  # settings that the first version did not have


@pytest.mark.parametrize("step", [1, 4, 6])
def test_a_folder_of_the_first_version_is_resumed_to_the_last_bit(config, tmp_path, step):
    """Written as that version did: byte by byte, up to the time, a folder that it left."""
    whole = train(config(), root=tmp_path, name="whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="cut", observer=Interrupt(step))
    cut = tmp_path / "cut"
    settings = json.loads((cut / "config.json").read_text())
    old = {key: value for key, value in settings.items() if key not in GAINED}
    (cut / "config.json").write_text(json.dumps(old))
    (checkpoint,) = (cut / "checkpoints").iterdir()
    state = json.loads((checkpoint / "state.json").read_text())
    progress = state["state"]["progress"]
    state["state"]["progress"] = {key: progress[key] for key in OLD_PROGRESS}
    (checkpoint / "state.json").write_text(json.dumps(state))
    resumed = resume(cut)
    for file in ("last.safetensors", "metrics.jsonl"):
        assert (cut / file).read_bytes() == (whole.run / file).read_bytes()
    assert resumed.returns == whole.returns
    times = ("seconds", "peak_memory_mb", "decisions_per_second", "run")
    changed = dict.fromkeys(times, 0)
    assert dataclasses.replace(resumed, **changed) == dataclasses.replace(whole, **changed)


def test_averages_and_precision(config, tmp_path):
    """What the engine has for all: the last weights are the averages; half precision plays."""
    own = config(ema=0.5, epochs=1)
    run = train(own, root=tmp_path).run
    (checkpoint,) = (run / "checkpoints").iterdir()
    stored = tensors_from_bytes((checkpoint / "weights.safetensors").read_bytes())
    last = tensors_from_bytes((run / "last.safetensors").read_bytes())
    averages = {n.removeprefix("average/"): t for n, t in stored.items() if "average/" in n}
    assert averages.keys() == last.keys()
    assert all(torch.equal(averages[name], last[name]) for name in last)
    assert not torch.equal(last["predict.weight"], stored["predict.weight"])
    for precision in ("bf16-true", "bf16-mixed", "64-true"):
        result = train(config(precision=precision, epochs=1, ema=0.5), root=tmp_path)
        assert len(result.returns) == 2
    assert config(ema=0.5).fingerprint() != config().fingerprint()
    assert config(devices=2).fingerprint() == config().fingerprint()


@pytest.mark.slow
def test_two_processes_compute_what_one_does(config, tmp_path):
    """Pieces at the beginning of an episode have fewer steps: a share counts by its steps."""
    own = {"dropout": 0.0, "batch_size": 7, "accelerator": "cpu", "context": 9}
    one = train(config(**own), root=tmp_path, name="one").run
    two = train(config(**own, devices=2), root=tmp_path, name="two").run
    for a, b in zip(read_metrics(one), read_metrics(two), strict=True):
        for key in {"task_loss", "ksvd_loss", "grad_norm"} & a.keys():
            assert a[key] == pytest.approx(b[key], rel=1e-5)


def test_the_trained_model_plays_as_the_run_did_without_its_data(config, tmp_path, monkeypatch):
    result = train(config(stream=True), root=tmp_path)
    assert result.returned == read_metrics(result.run)[-1]["returned"]  # judged once
    monkeypatch.setattr(RLTask, "episodes", None)
    weights = tensors_from_bytes((result.run / "last.safetensors").read_bytes())
    agent = make_agent(trained_model(config(stream=True), weights), stream=True)
    again = evaluate(agent, TASK.environment, episodes=2, seed=10_000)
    assert again.returns == result.returns


def test_behaviour_cloning_and_attentions_without_a_ksvd_loss(config, tmp_path):
    own = config(conditioned=False, context=1, attention=("softmax",))
    result = train(own, root=tmp_path)
    assert result.run.name.endswith("softmax-cloning-001")
    assert all(m["ksvd_loss"] is None for m in read_metrics(result.run))


def test_seeds(config, tmp_path):
    found = train_seeds(config(epochs=1), [0, 3], root=tmp_path, name="both")
    assert sorted(p.name for p in (tmp_path / "both").glob("seed-*")) == ["seed-0", "seed-3"]
    scores = [result.score for result in found.results.values()]
    assert found.mean == pytest.approx(sum(scores) / 2)
    assert resume(tmp_path / "both").to_dict() == found.to_dict()


def test_a_failed_seed_is_recorded(config, tmp_path, monkeypatch):
    real = Session.run

    def run(session):
        if session.config.seed == 1:
            raise NotFiniteError("it went wrong")
        return real(session)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", run)
        found = train_seeds(config(epochs=1), [0, 1, 2], root=tmp_path, name="many")
        assert found.failed == {1: "it went wrong"}
        assert set(found.results) == {0, 2}
        summary = json.loads((tmp_path / "many" / "summary.json").read_text())
        assert summary["failed"] == {"1": "it went wrong"}
        with pytest.raises(RunError, match="every seed failed: it went wrong"):
            train_seeds(config(epochs=1), [1], root=tmp_path)
    assert resume(tmp_path / "many").failed == {}  # tried again


@pytest.mark.parametrize("begin", [train, lambda *a, **k: train_seeds(*a, [0], **k)])
def test_without_an_environment_there_is_no_run(config, tmp_path, monkeypatch, begin):
    def missing(environment):
        raise ImportError("environments need mujoco")

    monkeypatch.setattr(environments, "make_environment", missing)
    with pytest.raises(ImportError, match="environments need mujoco"):
        begin(config(), root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_data_that_do_not_fit_the_environment_are_refused(config, tmp_path, monkeypatch):
    load = RLTask.episodes

    def narrow(*given):
        data = load(*given)
        return dataclasses.replace(data, observations=data.observations[:, :3])

    monkeypatch.setattr(RLTask, "episodes", narrow)
    with pytest.raises(DataError, match="has states of 3 numbers; expected 4"):
        train(config(), root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_it_learns(config, tmp_path):
    """The loss of the actions falls."""
    own = config(epochs=1, epoch_steps=40, lr=1e-2, episodes=1, dropout=0.0)
    losses = [m["task_loss"] for m in read_metrics(train(own, root=tmp_path).run)]
    assert sum(losses[30:40]) < 0.9 * sum(losses[:10])


def test_changed_data_are_refused(config, tmp_path, folder):
    with pytest.raises(KeyboardInterrupt):
        train(config(), root=tmp_path, name="cut", observer=Interrupt(1))
    collect(TASK, tmp_path / "other", episodes=5, form="d4rl")
    path = tmp_path / "cut" / "config.json"
    settings = json.loads(path.read_text()) | {"data_dir": str(tmp_path / "other")}
    path.write_text(json.dumps(settings))
    with pytest.raises(RunError, match=r"is not what .* began with; expected the same files"):
        resume(tmp_path / "cut")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 0}, "context is 0; expected an integer of at least 1"),
        ({"episodes": 1.5}, r"episodes is 1\.5; expected an integer"),
        ({"target": float("nan")}, "target is nan; expected a number or None"),
        ({"weights": "data"}, "weights is 'data'; expected 'free' or 'tied'"),
        ({"attention": ("linformer",)}, "'linformer' does not have a causal form"),
        ({"attention": ("reformer",), "stream": True}, "'reformer' does not stream"),
        ({"attention": ("sofmax",)}, "did you mean 'softmax'"),
        ({"lr": -1.0}, r"lr is -1\.0; expected a positive number"),
        ({"task": "rl/hoper-medium"}, "did you mean 'rl/hopper-medium'"),
        ({"heads": 3}, "heads is 3; expected a divisor of the width, 8"),
    ],
)
def test_wrong_settings(config, changes, message):
    settings = config().to_dict() | changes
    with pytest.raises(ValueError, match=message):
        DecisionConfig.from_dict(settings).validate()


def test_settings_as_json(config):
    own = config(options={"softmax": {"bias": False}})
    assert DecisionConfig.from_dict(json.loads(json.dumps(own.to_dict()))) == own
    with pytest.raises(ValueError, match=r"unknown setting 'widht'.*did you mean 'width'"):
        DecisionConfig.from_dict({"task": TASK.name, "widht": 3})
    assert own.fingerprint() != config().fingerprint()
    # resumed runs compare it: it must not change
    known = "d7aa7281d726cffadbccab2c42618d6d9e164b361736b3b0af9960f6cf91393e"
    assert DecisionConfig(task="rl/hopper-medium", rank=7, data_dir="x").fingerprint() == known
    assert own.fingerprint() == DecisionConfig(**(own.to_dict() | {"data_dir": None})).fingerprint()


def test_the_random_state_of_the_caller_is_kept(config, tmp_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    train(config(epochs=1), root=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
