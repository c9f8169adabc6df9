"""The command, run in this process."""

import shutil
from typing import NamedTuple

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
def pictures():
    pytest.importorskip("matplotlib")
