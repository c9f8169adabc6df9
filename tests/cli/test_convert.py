"""`primal convert`: the plan as a table, a folder that works, a picture."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

import transformers
import typer
from typer.testing import CliRunner

import primal_attention as pa
from primal_attention.cli.convert import convert
from primal_attention.convert import converted_layers, load
from primal_attention.report import style
from primal_attention.runs.extras import MissingExtra

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32,
}  # fmt: skip


@pytest.fixture
def primal_convert():
    app = typer.Typer()
    app.command()(convert)

    def call(*words):
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return call


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)).eval()
    model.save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "vocab.txt").write_text("[PAD]\n")
    return tmp_path / "base"


@pytest.fixture
def batches(tmp_path):
    ids = np.random.default_rng(0).integers(3, 40, (6, 7))
    np.savez(tmp_path / "texts.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    return tmp_path / "texts.npz"


def test_the_plan_alone_writes_nothing(primal_convert, folder, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = primal_convert(folder, "--rank", 4, "--layers", "1:")
    assert "bert.encoder.layer.2.attention" in done.stdout
    assert "primal tied, rank 4" in done.stdout
    assert "2 of 3 change" in done.stdout
    assert "CHANGES THE FUNCTION" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_measured_plan_chooses(primal_convert, folder, batches, tmp_path):
    words = [folder, "--rank", 4, "--batches", batches, "--batch-size", 3, "--length", 4096]
    shown = primal_convert(*words)  # without --out, all that is asked for is measured
    assert "together, in turn" in " ".join(shown.stdout.split())
    done = json.loads(primal_convert(*words, "--budget", "2x", "--json").stdout)
    chosen = [row["names"][0] for row in done["plan"] if row["settings"] is not None]
    assert len(chosen) == 2
    assert sorted(done["together"]) == sorted(chosen)
    out = tmp_path / "out"
    primal_convert(*words, "--count", 1, "-o", out)
    assert len(converted_layers(load(out))) == 1


def test_a_usable_folder(primal_convert, folder, batches, tmp_path):
    out = tmp_path / "out"
    done = primal_convert(
        folder, "--rank", 4, "-o", out, "--distill", 3, "--batches", batches, "--batch-size", 4
    )
    assert "relative error" in done.stdout
    names = {path.name for path in out.iterdir()}
    assert {"conversion.json", "weights.safetensors", "config.json", "vocab.txt"} <= names
    assert {"layers.png", "layers.svg"} <= names
    model = load(out)
    ids = torch.randint(3, 40, (2, 5))
    assert model(input_ids=ids).logits.shape == (2, 5, 40)
    model.train()
    (model(input_ids=ids).logits.mean() + pa.ksvd_loss(model)).backward()
    assert len(converted_layers(load(out, base=folder))) == 1


def test_an_untrained_model_as_json(primal_convert, folder, tmp_path):
    config = tmp_path / "only" / "config.json"
    config.parent.mkdir()
    config.write_text((folder / "config.json").read_text())
    for path in (config, config.parent):
        done = primal_convert(path, "--class", "BertModel", "--json", "--layers", 0)
        found = json.loads(done.stdout)
        assert found["trained"] is False
        assert [row["settings"] is None for row in found["plan"]] == [False, True, True]


def test_it_says_when_weights_were_not_read(primal_convert, folder):
    done = primal_convert(folder / "config.json", "--rank", 4)
    assert "untrained: nothing was read but its config.json" in " ".join(done.stdout.split())
    assert "untrained" not in primal_convert(folder, "--rank", 4).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--distill", "3"], "--distill is given without --batches"),
        (["--budget", "2x"], "--budget is given without --batches"),
        (["--layers", "layer.9"], "matches none of 3"),
        (["--class", "BertModle"], "BertModel"),
        (["--weights", "tide"], "weights is 'tide'"),
        (["-o", "."], "not empty"),
    ],
)
def test_refusals(primal_convert, folder, words, message, monkeypatch):
    monkeypatch.chdir(folder)
    try:
        done = primal_convert(folder, *words)
        text, code = done.output, done.exit_code
    except Exception as error:
        text, code = str(error) or error.format_message(), 1
    assert code != 0
    assert message in " ".join(text.replace("│", " ").split())


def test_another_attention(primal_convert, folder, tmp_path):
    out = tmp_path / "out"
    assert "linear" in primal_convert(folder, "--attention", "linear", "-o", out).stdout
    assert "linear" in (out / "layers.svg").read_text()
    assert load(out)(input_ids=torch.randint(3, 40, (2, 5))).logits.isfinite().all()
    with pytest.raises(ValueError, match="unknown option of a conversion: 'rank'"):
        primal_convert(folder, "--attention", "linear", "--rank", 4)


def test_pictures_are_an_extra(primal_convert, folder, tmp_path, monkeypatch):
    def missing():
        raise MissingExtra("figures need matplotlib", name="matplotlib")

    monkeypatch.setattr(style, "_matplotlib", missing)
    primal_convert(folder, "--rank", 4, "-o", tmp_path / "out")
    assert not (tmp_path / "out" / "layers.png").exists()
    assert (tmp_path / "out" / "weights.safetensors").exists()
