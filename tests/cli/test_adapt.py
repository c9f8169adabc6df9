"""`primal adapt`: a folder that opens, a page, and a second start that continues."""

import dataclasses
import inspect
import json

import pytest

pytest.importorskip("typer")
pytest.importorskip("transformers")

import transformers
import typer
from typer.testing import CliRunner

import primal_attention as pa
from primal_attention.cli.adapt import adapt
from primal_attention.train.adapt import AdaptSettings

from .test_convert import batches, folder

__all__ = ["batches", "folder"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_model_its_page_and_a_second_start(at_once, folder, batches, tmp_path):
    app = typer.Typer()
    app.command()(adapt)
    out = tmp_path / "out"
    words = [
        folder, "--batches", batches, "--layers", "-2:", "--rank", 4, "--batch-size", 2,
        "--layerwise", 2, "--steps", 4, "--every", 2, "-o", out, "--quiet", "--json",
        "--no-speed",
        *([] if at_once else ["--one-by-one"]),
    ]  # fmt: skip
    results = []
    for _ in range(2):
        done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        results.append(json.loads(done.stdout))
    assert results[0] == results[1]
    assert results[0]["after"]["loss"] <= results[0]["before"]["loss"]
    model = pa.from_pretrained(out)
    assert isinstance(model, transformers.BertForMaskedLM)
    assert len(pa.plan(model, 0).rows) == 3
    page = (out / "report.html").read_text()
    assert "Error by block" in page
    assert "bert.encoder.layer.2" in page
    assert (out / "vocab.txt").is_file()
    assert "agreement with the original" in (out / "README.md").read_text()


def test_nothing_is_written_over_a_model(folder, batches, tmp_path):
    app = typer.Typer()
    app.command()(adapt)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for out, said in ((folder, "something else than an adaptation"), (batches, "is a file")):
        done = CliRunner().invoke(app, [str(folder), "--batches", str(batches), "-o", str(out)])
        assert said in str(done.exception)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_the_page_has_time_and_memory_of_both(folder, batches, tmp_path):
    app = typer.Typer()
    app.command()(adapt)
    words = [
        folder, "--batches", batches, "--rank", 4, "--extend-positions", 200, "--layerwise", 0,
        "--batch-size", 2, "--steps", 1, "-o", tmp_path / "out", "--quiet", "--json",
    ]  # fmt: skip
    CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    page = (tmp_path / "out" / "report.html").read_text()
    lengths = page.split('id="paces"')[1].split("<tbody>")[1]
    assert [f'"row">{length}<' in lengths for length in (128, 200, 512)] == [True, True, False]


def test_the_command_has_the_defaults_of_the_library():
    """They are written twice, since the command imports torch only at work."""
    ours = {name: p.default for name, p in inspect.signature(adapt).parameters.items()}
    for field in dataclasses.fields(AdaptSettings):
        if field.name in ours:
            assert ours[field.name] == field.default, field.name
