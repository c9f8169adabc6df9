"""The commands for offline reinforcement learning."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("minari")

from primal_attention.cli import rl
from primal_attention.cli.rl import collect, new_rl_run, old_rl_run, resolve_rl
from primal_attention.cli.settings import UsageError
from primal_attention.tasks.rl import get_rl_task, sac
from primal_attention.train import decision
from primal_attention.train.decision import DecisionResult, DecisionSeeds

SMALL = {
    "rank": 4, "width": 8, "heads": 2, "feedforward": 16, "context": 4, "batch_size": 8,
    "epochs": 1, "epoch_steps": 3, "episodes": 1,
}  # fmt: skip


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(collect)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_collect_train_resume(command, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    made = command("invertedpendulum-medium-replay", "--data-dir", tmp_path, "--episodes", 5)
    assert made.exit_code == 0, made.output
    assert "medium-replay-v0" in made.output
    config = resolve_rl(
        "rl/invertedpendulum-medium-replay", ("softmax", "primal"), data_dir=str(tmp_path), **SMALL
    )
    new_rl_run(config, None, root=tmp_path / "runs", name="one", quiet=False, as_json=False)
    shown = capsys.readouterr()
    assert "score" in shown.out
    assert "epoch 1/1" in shown.err
    assert "no picture" not in shown.err
    assert (tmp_path / "runs" / "one" / "episode.png").read_bytes()[1:4] == b"PNG"
    old_rl_run(tmp_path / "runs" / "one", quiet=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["status"] == "finished"
    new_rl_run(config, [0, 1], root=tmp_path / "runs", name="two", quiet=True, as_json=False)
    assert "seeds" in capsys.readouterr().out


def test_whose_policies_take_turns(command, tmp_path):
    for name, gain in (("ars", 4.0), ("ppo", -4.0)):
        arrays = {"action_net.weight": np.array([[0.0, gain, 0.0, 0.0]])}
        np.savez(tmp_path / f"{name}-InvertedPendulum-v4.npz", **arrays)
    made = command(
        "invertedpendulum-medium", "--policies", tmp_path, "--algorithms", "ars,ppo,ppo",
        "--episodes", 6, "--data-dir", tmp_path,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    data = get_rl_task("rl/invertedpendulum-medium").load(tmp_path)
    signs = data.observations[:, 1] * data.actions[:, 0] > 0
    towards = [bool(signs[start]) for start in data.starts]
    assert towards == [True, False, False] * 2


def test_wrong_usage(command, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown setting 'norm'"):
        resolve_rl("rl/hopper-medium", ("softmax",), norm="post")
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
    data = get_rl_task("rl/halfcheetah-medium").load(tmp_path)
    np.testing.assert_array_equal(data.actions, 0.5)


def test_a_failed_seed_is_told(tmp_path, capsys):
    result = DecisionResult(
        run=tmp_path, target=1.0, returns=(1.0,), returned=1.0, deviation=0.0, score=74.5,
        data_mean=1.0, best_decile=1.0, decisions_per_second=1.0, seconds=3.0, parameters=7,
        peak_memory_mb=1.0,
    )  # fmt: skip
    (tmp_path / "episode.png").touch()  # so that none is drawn
    found = DecisionSeeds(tmp_path, {0: result}, {3: "the loss is nan"}, 74.5, None, None)
    with pytest.raises(typer.Exit) as ended:
        rl._finish(found, as_json=False)
    assert ended.value.exit_code == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "seed 3 failed: the loss is nan" in shown


def test_a_picture_never_spoils_a_finished_run(tmp_path, monkeypatch, capsys):
    def broken(run):
        raise AttributeError("no glGetError")

    monkeypatch.setattr(decision, "read_decision_config", broken)
    rl._picture(tmp_path)
    assert "no picture: no glGetError" in capsys.readouterr().err
