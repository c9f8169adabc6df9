"""The commands for offline reinforcement learning."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("minari")

from primal_attention.cli.rl import collect, new_rl_run, old_rl_run, resolve_rl
from primal_attention.cli.settings import UsageError
from primal_attention.tasks.rl import get_rl_task

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
