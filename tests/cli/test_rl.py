"""The commands for offline reinforcement learning."""

import json

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("minari")

from primal_attention.cli.rl import collect, new_rl_run, old_rl_run, resolve_rl
from primal_attention.cli.settings import UsageError

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
    old_rl_run(tmp_path / "runs" / "one", quiet=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["status"] == "finished"
    new_rl_run(config, [0, 1], root=tmp_path / "runs", name="two", quiet=True, as_json=False)
    assert "seeds" in capsys.readouterr().out


def test_wrong_usage(command, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown setting 'norm'"):
        resolve_rl("rl/hopper-medium", ("softmax",), norm="post")
    assert "did you mean 'rl/hopper-medium'" in str(command("hoper-medium").exception)
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    assert "no folder is given" in str(command("hopper-medium").exception)
