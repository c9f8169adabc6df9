"""The command, run in this process."""

import shutil
from typing import NamedTuple

import numpy as np
import pytest
import torch

pytest.importorskip("typer")

from primal_attention.cli import run

TINY = (
    "train", "uea/BasicMotions", "--epochs", 2, "--width", 16, "--heads", 2,
    "--feedforward", 16, "--rank", 4,
)  # fmt: skip


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory, embedded data only, one thread."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    monkeypatch.delenv("PRIMAL_DEBUG", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def primal(capsys):
    """`primal("train", "x")` runs a command line: exit code, stdout, stderr."""

    def call(*words: object) -> Done:
        capsys.readouterr()
        code = run([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def tiny(request, monkeypatch):
    """A training that takes a fraction of a second; pictures, which take longer, only on request
    (`@pytest.mark.usefixtures("pictures")`)."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("primal_attention.cli.runs._draw", lambda run: None)
    return TINY


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
        patch.setattr("primal_attention.cli.runs._draw", lambda run: None)
        words = [*TINY, "--attention", "softmax,primal", "--quiet", "--out", root, "--name", "one"]
        assert run([str(word) for word in words]) == 0
    return root / "one"


@pytest.fixture
def trained(trained_once, tmp_path):
    """The folder of a run with a softmax and a primal layer."""
    return shutil.copytree(trained_once, tmp_path / "runs" / "one")


@pytest.fixture
def event_run(primal, tiny, tmp_path):  # `tiny`: no pictures
    """The folder of a run that learned what happens next, from a table."""
    rng = np.random.default_rng(0)
    lines = ["sequence,time,type"]
    for number in range(20):
        times = 1e9 + np.cumsum(rng.exponential(size=8))
        lines += [f"u{number},{t:.3f},{'ab'[(number + i) % 2]}" for i, t in enumerate(times)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    done = primal(
        "train", "events/csv", "--data", "log.csv", "--width", 16, "--feedforward", 16,
        "--epochs", 2, "--rank", 4, "--quiet", "--name", "e",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "majority" in done.out
    return tmp_path / "runs" / "e"


@pytest.fixture
def text_run(primal, tiny, tmp_path):
    """The folder of a run that learned to count to four."""
    (tmp_path / "count.txt").write_text("one two three four\n" * 60)
    done = primal(
        "train", "lm/text", "--data", "count.txt", "--width", 16, "--feedforward", 16, "--rank", 4,
        "--length", 16, "--epochs", 6, "--batch-size", 4, "--warmup-steps", 0, "--lr", 0.02,
        "--quiet", "--name", "lm",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "perplexity" in done.out
    return tmp_path / "runs" / "lm"


@pytest.fixture
def pictures():
    pytest.importorskip("matplotlib")
