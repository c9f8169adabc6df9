"""`primal data`: list, fetch, generate."""

import json

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from primal_attention.cli.data import data_app
from primal_attention.cli.settings import UsageError


@pytest.fixture
def call():
    def run(*words):
        return CliRunner().invoke(data_app, [str(word) for word in words])

    return run


def test_alone_it_lists(call):
    done = call("--json")
    assert done.exit_code == 0
    assert "uea/JapaneseVowels" in {entry["task"] for entry in json.loads(done.stdout)}
    assert "uea/JapaneseVowels" in call().stdout


def test_generate_listops(call, tmp_path):
    done = call(
        "generate", "listops", "--data-dir", tmp_path, "--train", 30, "--validation", 3, "--test",
        2, "--max-depth", 5, "--min-length", 20, "--max-length", 90, "--workers", 1, "--seed", 3,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    folder = tmp_path / "lra" / "listops-1000"
    assert len((folder / "basic_train.tsv").read_text().splitlines()) == 31
    assert "1 of 1 parts" in done.stderr
    assert "MIN 0." in done.stdout
    assert "(published: at most 10)" in done.stdout
    assert str(folder) in done.stdout.replace("\n", "")


def test_generate_pathfinder(call, tmp_path):
    pytest.importorskip("PIL")
    words = ("generate", "pathfinder", "--out", tmp_path / "here", "--pictures", 10)
    done = call(*words, "--workers", 1, "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert len(list((tmp_path / "here" / "imgs" / "0").glob("*.png"))) == 10
    assert "joined" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "cifar"], "unknown data set to fetch: 'cifar' (did you mean 'cifar10'?)"),
        (["get", "cifar10"], "no folder is given; expected --out, --data-dir or PRIMAL"),
        (["generate", "listops"], "no folder is given"),
        (["--data-dir", ".", "generate", "listops"], "--data-dir stands before 'generate'"),
        (
            ["--data-dir", ".", "get", "cifar10"],
            "--data-dir stands before 'get'; expected it after",
        ),
        (["--json", "generate", "listops", "--out", "x"], "--json stands before 'generate'"),
        (
            ["generate", "listops", "--out", "x", "--min-length", 99, "--max-length", 99],
            "max_length is 99; expected more than min_length + 1 = 100",
        ),
    ],
)
def test_wrong_usage(call, words, message):
    done = call(*words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
