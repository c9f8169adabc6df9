"""The examples of extending.md do what they say."""

import re
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa
from primal_attention import tasks
from primal_attention.attention import registry

from .pages import ROOT, code

ATTENTION, TASK = code("extending.md")


@pytest.fixture
def decay(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    exec(ATTENTION, {"__name__": "example"})
    return pa.make_attention("decay", 4, 2, reach=2.0, causal=True, dtype=torch.float64)


def test_the_attention_is_its_formula(decay):
    x = torch.randn(1, 5, 4, dtype=torch.float64)
    apart = (torch.arange(5)[:, None] - torch.arange(5)).double()
    kernel = torch.where(apart >= 0, (-apart / 2).exp(), 0)
    kernel = (kernel / kernel.sum(-1, keepdim=True)).double()
    values = torch.nn.functional.linear(x, decay.in_proj_weight[8:], decay.in_proj_bias[8:])
    assert_close(decay(x)[0], decay.out_proj(kernel @ values))
    assert_close(decay(x, need_weights=True)[1][0], kernel)


def test_the_attention_is_gone_after_the_block():
    assert "decay" not in pa.available_attentions()


def test_the_task_trains(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightning_fabric")
    from primal_attention.train import RunConfig, train

    names: dict = {"__name__": "example"}
    exec(TASK, names)
    assert capsys.readouterr().out == "torch.Size([3, 2])\n"
    monkeypatch.setitem(tasks._tasks, "own/waves", names["waves"])
    recipe = names["waves"].recipe("default", ("primal",))
    config = RunConfig(task="own/waves", attention=("primal",), rank=4, epochs=3, **recipe)
    result = train(config, root=tmp_path)
    assert 0.0 <= result.accuracy <= 1.0
    assert tasks.get_task("own/waves").status().complete


@pytest.mark.slow
def test_the_attention_keeps_the_promises_of_all(tmp_path):
    (tmp_path / "example.py").write_text(
        f"exec(compile({ATTENTION!r}, 'extending.md', 'exec'))\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "example", "-p", "no:cacheprovider"]
    command += ["-k", "decay", "tests/attention/test_sweep.py", "tests/attention/test_registry.py"]
    paths = f"{tmp_path}:{ROOT / 'src'}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 25
