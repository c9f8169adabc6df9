"""The commands for offline reinforcement learning."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("minari")

from primal_attention.cli import runs
from primal_attention.cli.rl import collect
from primal_attention.report import pictures as drawn
from primal_attention.tasks.rl import sac
from primal_attention.tasks.rl.result import DecisionResult
from primal_attention.tasks.rl.sets import get_rl_task
from primal_attention.train import DecisionConfig, SeedsResult

SMALL = (
    "--rank", 4, "--width", 8, "--heads", 2, "--feedforward", 16, "--context", 4, "--batch-size", 8,
    "--epochs", 1, "--epoch-steps", 3, "--episodes", 1,
)  # fmt: skip


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(collect)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_collect_train_resume(primal, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    words = ("invertedpendulum-medium-replay", "--data-dir", tmp_path, "--episodes", 5)
    made = primal("data", "collect", *words)
    assert made.code == 0, made.err
    assert "medium-replay-v0" in made.out
    train = ("train", "rl/invertedpendulum-medium-replay", "--data-dir", tmp_path, *SMALL)
    done = primal(*train, "--attention", "softmax,primal", "--name", "one", "--cloning", "--stream")
    assert done.code == 0, done.err
    assert "score" in done.out
    assert "behaviour cloning, seed 0: " in done.err
    assert "5 episodes, " in done.err
    assert "epoch 1/1" in done.err
    assert "no picture" not in done.err
    run = tmp_path / "runs" / "one"
    assert (run / "episode.png").read_bytes()[1:4] == b"PNG"
    settings = json.loads((run / "config.json").read_text())
    assert (settings["conditioned"], settings["stream"]) == (False, True)
    again = primal("resume", run, "--quiet", "--json")
    assert json.loads(again.out)["status"] == "finished"
    both = primal(*train, "--seeds", "0,1", "--quiet", "--name", "two")
    assert "seeds" in both.out
    settings = json.loads((tmp_path / "runs" / "two" / "seed-1" / "config.json").read_text())
    assert settings["attention"] == ["softmax", "softmax", "primal"]
    assert (settings["conditioned"], settings["ema"], settings["devices"]) == (True, None, 1)


def test_whose_policies_take_turns(command, tmp_path):
    for name, gain in (("ars", 4.0), ("ppo", -4.0)):
        arrays = {"action_net.weight": np.array([[0.0, gain, 0.0, 0.0]])}
        np.savez(tmp_path / f"{name}-InvertedPendulum-v4.npz", **arrays)
    made = command(
        "invertedpendulum-medium", "--policies", tmp_path, "--algorithms", "ars,ppo,ppo",
        "--episodes", 6, "--data-dir", tmp_path,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    data = get_rl_task("rl/invertedpendulum-medium").episodes(tmp_path)
    signs = data.observations[:, 1] * data.actions[:, 0] > 0
    towards = [bool(signs[start]) for start in data.starts]
    assert towards == [True, False, False] * 2


def test_wrong_usage(command, primal, tmp_path, monkeypatch):
    for option, value in (("--norm", "post"), ("--recipe", "paper"), ("--protocol", "paper")):
        refused = primal("train", "rl/hopper-medium", option, value)
        assert (refused.code, f"{option} is not for rl/hopper-medium" in refused.err) == (2, True)
    refused = primal("train", "uea/BasicMotions", "--cloning")
    assert (refused.code, "--cloning is not for uea/BasicMotions" in refused.err) == (2, True)
    assert "did you mean 'rl/hopper-medium'" in str(command("hoper-medium").exception)
    words = ("--data-dir", tmp_path, "--policies", tmp_path, "--train-steps", 9)
    assert "both given; expected one" in str(command("hopper-medium", *words).exception)
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    assert "no folder is given" in str(command("hopper-medium").exception)


def test_what_is_wrong_is_said_before_a_policy_is_trained(command, tmp_path, monkeypatch):
    monkeypatch.setattr(sac, "train_sac", None)
    words = ("--data-dir", tmp_path, "--train-steps", 9)
    told = str(command("walker2d-medium-expert", *words).exception)
    assert f"expected trpo-Walker2d*.npz in {tmp_path / 'policies'}" in told
    told = str(command("walker2d-medium", *words, "--form", "hdf").exception)
    assert told.startswith("form is 'hdf'; expected one of")
    told = str(command("walker2d-medium", *words, "--algorithms", "ars").exception)
    assert "expected 'sac' among them" in told
    (tmp_path / "minari" / "collected" / "walker2d" / "medium-v0").mkdir(parents=True)
    assert "exists already" in str(command("walker2d-medium", *words).exception)


def test_the_policy_just_trained_plays(command, tmp_path, monkeypatch):
    policies = tmp_path / "policies"
    policies.mkdir()
    for name in ("ars", "sac"):  # others, which do nothing
        arrays = {"action_net.weight": np.zeros((6, 17))}
        np.savez(policies / f"{name}-HalfCheetah-v9.npz", **arrays)

    def train(environment, folder, *, steps, seed, progress):
        path = folder / f"sac-{environment.id}-{steps}-{seed}.npz"
        bias = {"action_net.weight": np.zeros((6, 17)), "action_net.bias": np.full(6, 0.5)}
        np.savez(path, **bias)
        progress(steps, steps)
        return path

    monkeypatch.setattr(sac, "train_sac", train)
    words = ("--data-dir", tmp_path, "--episodes", 1, "--seed", 2, "--train-steps", 9)
    made = command("halfcheetah-medium", *words)
    assert made.exit_code == 0, made.output
    data = get_rl_task("rl/halfcheetah-medium").episodes(tmp_path)
    np.testing.assert_array_equal(data.actions, 0.5)


def test_a_failed_seed_is_told(tmp_path, capsys):
    result = DecisionResult(
        run=tmp_path, target=1.0, returns=(1.0,), returned=1.0, deviation=0.0, score=74.5,
        data_mean=1.0, best_decile=1.0, decisions_per_second=1.0, seconds=3.0, parameters=7,
        peak_memory_mb=1.0,
    )  # fmt: skip
    (tmp_path / "episode.png").touch()  # so that none is drawn
    config = DecisionConfig(task="rl/hopper-medium")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    found = SeedsResult(tmp_path, {0: result}, {3: "the loss is nan"}, 74.5, None, None)
    with pytest.raises(typer.Exit) as ended:
        runs._finish(found, as_json=False)
    assert ended.value.exit_code == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "seed 3 failed: the loss is nan" in shown


def test_a_picture_never_spoils_a_finished_run(tmp_path, monkeypatch, capsys):
    def broken(run):
        raise AttributeError("no glGetError")

    monkeypatch.setattr(drawn, "_episode", broken)
    (tmp_path / "config.json").write_text('{"task": "rl/hopper-medium"}')
    runs._draw(tmp_path)
    assert "no pictures: no glGetError" in capsys.readouterr().err
