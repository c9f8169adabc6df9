"""`primal report` on a run that was trained: the page has its spectrum and its commands."""

import re

import pytest
import typer
from typer.testing import CliRunner

from primal_attention.cli.report import report


@pytest.fixture
def show():
    app = typer.Typer()
    app.command()(report)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_a_run(trained, show):
    done = show(trained, "--inputs", 2, "--title", "Basic & more")
    assert done.exit_code == 0, done.output
    assert "report.html" in done.output
    text = (trained / "report.html").read_text()
    words = "Basic &amp; more", "Singular-value decay", "Learned Λ against 1 / σ", "2 inputs"
    for word in (*words, "primal train uea/BasicMotions --attention softmax,primal", "--seed 0"):
        assert word in text
    assert "No spectrum" not in text


def test_no_spectrum_and_elsewhere(trained, show, tmp_path):
    done = show(trained, "--no-spectrum", "--out", tmp_path / "x" / "page.html")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "x" / "page.html").read_text()
    assert "Singular-value" not in text
    assert "--no-spectrum" in text  # the command that made it
    assert not (trained / "report.html").exists()


def test_settings_of_another_version(trained, show):
    config = (trained / "config.json").read_text()
    (trained / "config.json").write_text(config.replace("uea/BasicMotions", "old/task"))
    done = show(trained)
    assert done.exit_code == 0, done.output
    text = (trained / "report.html").read_text()
    assert "primal train old/task (with settings of another version)" in text
    assert re.search("No spectrum of one: .*unknown task", text)


def test_what_is_no_run(show, tmp_path):
    done = show(tmp_path)
    assert done.exit_code == 1
    assert "has neither config.json" in str(done.exception)
