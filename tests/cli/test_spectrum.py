"""`primal spectrum` on a run that was trained, and on a Hugging Face model."""

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

import primal_attention as pa
from primal_attention.cli.spectrum import spectrum
from primal_attention.report.model_spectra import load_model
from primal_attention.reproduce.spectra import load_run
from primal_attention.runs.errors import RunError


@pytest.fixture
def show():
    app = typer.Typer()
    app.command()(spectrum)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_a_run(trained, show):
    pytest.importorskip("matplotlib")
    done = show(trained, "--inputs", 3)
    assert done.exit_code == 0, done.output
    for word in ("encoder.layers.0.attention", "primal (tied)", "factored", "exact", "Lambda"):
        assert word in done.output
    names = {"spectrum.json", "spectrum.png", "spectrum.svg", "effective_rank.png"}
    assert names <= {path.name for path in trained.iterdir()}
    written = json.loads((trained / "spectrum.json").read_text())
    assert [one["inputs"] for one in written["spectrum"]["layers"]] == [3, 3]
    assert len(written["diagnostics"]["layers"]) == 1


def test_the_weights_are_the_trained_ones(trained, show, tmp_path, monkeypatch):
    monkeypatch.setattr("primal_attention.report.model_spectra.draw_spectra", lambda *_: [])
    before = json.loads(show(trained, "--inputs", 2, "--json", "--out", tmp_path / "a").output)
    again = json.loads(show(trained, "--inputs", 2, "--json", "--out", tmp_path / "b").output)
    assert before["spectrum"] == again["spectrum"]
    assert (tmp_path / "a" / "spectrum.json").exists()
    assert not (trained / "spectrum.json").exists()


def test_of_several_seeds_the_first_is_shown(trained, show, tmp_path, monkeypatch):
    monkeypatch.setattr("primal_attention.report.model_spectra.draw_spectra", lambda *_: [])
    seeds = tmp_path / "seeds"
    shutil.copytree(trained, seeds / "seed-0")
    found = json.loads(show(seeds, "--inputs", 2, "--json").output)
    alone = json.loads(show(trained, "--inputs", 2, "--json").output)
    assert found["spectrum"] == alone["spectrum"]


def test_several_models_are_compared(trained, show, tmp_path):
    pytest.importorskip("matplotlib")
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    out = tmp_path / "figures"
    done = show(trained, other, "--inputs", 2, "--names", "a, b", "--out", out)
    assert done.exit_code == 0, (done.output, done.exception)
    lines = [line.split()[:3] for line in done.output.splitlines()[1:5]]
    assert lines == [["0", "a", "softmax"], ["0", "b", "softmax"], ["1", "a", "primal"],
                     ["1", "b", "primal"]]  # fmt: skip
    assert {p.name for p in out.iterdir()} == {
        "spectrum.json", "spectrum.png", "spectrum.svg", "layers.png", "layers.svg",
    }  # fmt: skip
    found = json.loads((out / "spectrum.json").read_text())["models"]
    alone = json.loads(show(trained, "--inputs", 2, "--json", "--out", tmp_path / "x").output)
    assert found["a"]["spectrum"] == found["b"]["spectrum"] == alone["spectrum"]
    assert not (trained / "spectrum.json").exists()


def test_several_models_ask_for_a_folder_and_names(show, tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert "2 models were given; expected --out" in str(show(*folders).exception)
    wrong = show(*folders, "--out", tmp_path, "--names", "one").exception
    assert str(wrong) == "--names is 'one'; expected 2 different names"
    assert "given twice" in str(show(folders[0], folders[0], "--out", tmp_path).exception)


def test_what_is_no_model_is_one_sentence(show, tmp_path):
    assert "has no config.json" in str(show(tmp_path).exception)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "expected --text" in str(show(tmp_path).exception)
    (tmp_path / "config.json").write_text("null")
    assert "config.json holds a NoneType; expected a JSON" in str(show(tmp_path).exception)


def bert(folder):
    """A tiny model, with a tokenizer and a text in the folder."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "some", "words", "in", "a", "row"]
    (folder / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "text.txt").write_text("some words\n\nin a row in a row\n")
    return transformers.BertModel(config)


@pytest.mark.slow
def test_a_hugging_face_model(show, tmp_path):
    bert(tmp_path).save_pretrained(tmp_path)
    done = show(tmp_path, "--text", tmp_path / "text.txt", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)["spectrum"]
    assert [one["inputs"] for one in found["layers"]] == [2, 2]
    assert found["skipped"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["save", "save_pretrained"])
def test_a_converted_model(show, tmp_path, way, monkeypatch):
    monkeypatch.setattr("primal_attention.report.model_spectra.draw_spectra", lambda *_: [])
    model = bert(tmp_path)
    pa.convert_(model, rank=2)
    if way == "save":
        pa.save(model, tmp_path)
    else:
        model.save_pretrained(tmp_path)
    done = show(tmp_path, "--text", tmp_path / "text.txt", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    kinds = [one["kind"] for one in found["spectrum"]["layers"]]
    assert kinds == ["softmax (Hugging Face)", "primal (tied)"]
    assert len(found["diagnostics"]["layers"]) == 1
    _, calls = load_model(tmp_path, 2, tmp_path / "text.txt")
    true = pa.spectrum(model, calls).to_dict()["layers"][1]["effective_rank"]["mean"]
    assert found["spectrum"]["layers"][1]["effective_rank"]["mean"] == pytest.approx(true, rel=1e-5)


def test_damaged_weights_are_named(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "spectrum.json").unlink(missing_ok=True)
    weights = run / "best.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:50], b"", whole[:-8]):
        weights.write_bytes(damaged)
        with pytest.raises(RunError, match=r"best.safetensors is damaged: "):
            load_run(run, 2)


def test_flow_between_parts_of_a_series(trained, show, monkeypatch):
    """The attentions see fewer positions than the series has: parts are of what they see."""
    monkeypatch.setattr("primal_attention.report.model_spectra.draw_spectra", lambda *_: [])
    done = show(trained, "--inputs", 2, "--groups", 3, "--json")
    assert done.exit_code == 0, done.output
    flow = json.loads(done.output)["flow"]
    assert flow["groups"] == ["0", "1", "2"]
    assert [one["measure"] for one in flow["layers"]] == ["mass", "mass"]
    assert "0 -> 1" in show(trained, "--inputs", 2, "--groups", 2).output
    wrong = show(trained, "--inputs", 2, "--groups", "[SEP]")
    assert isinstance(wrong.exception, RunError)
    assert "expected a number of equal parts" in str(wrong.exception)


@pytest.mark.slow
def test_flow_between_segments_of_a_text(show, tmp_path):
    bert(tmp_path).save_pretrained(tmp_path)
    done = show(tmp_path, "--text", tmp_path / "text.txt", "--json", "--groups", "a")
    assert done.exit_code == 0, (done.output, done.exception)
    flow = json.loads(done.stdout)["flow"]
    assert flow["groups"] == ["0", "1", "2"]  # before, between and after the places of "a"
    wrong = show(tmp_path, "--text", tmp_path / "text.txt", "--groups", "nowhere")
    assert "expected a number, or a token of" in str(wrong.exception)
