"""Folders that Auto classes, pipelines and a fresh process open."""

import json
import subprocess
import sys

import pytest
import torch

import primal_attention as pa
from primal_attention.train.adapt import AdaptSettings

from ..adapters.architectures import ARCHITECTURES

transformers = pytest.importorskip("transformers")


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    model, batch = ARCHITECTURES["bert"]()
    pa.convert_(model.eval(), layers="all", rank=4)
    pa.save_pretrained(model, tmp_path, figures={"masked accuracy": "0.95"})
    return model, batch, tmp_path


def test_the_folder_says_what_it_is(saved):
    _, _, folder = saved
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"]["AutoModel"] == "modeling_primal.BertModel"
    assert config["auto_map"]["AutoModelForMaskedLM"] == "modeling_primal.BertForMaskedLM"
    card = (folder / "README.md").read_text()
    assert "| `bert.encoder.layer.0.attention` | primal, weights=tied, rank=4" in card
    assert "- masked accuracy: 0.95" in card


def test_plain_names_open_it(saved):
    model, batch, folder = saved
    again = pa.from_pretrained(folder).eval()
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits)
    again.save_pretrained(folder / "again")
    twice = pa.from_pretrained(folder / "again").eval()
    torch.testing.assert_close(twice(**batch).logits, model(**batch).logits)


def test_auto_classes_open_it(saved):
    """By the code of the folder, as the hub would."""
    model, batch, folder = saved
    kind = {"local_files_only": True, "trust_remote_code": True}
    full = transformers.AutoModelForMaskedLM.from_pretrained(folder, **kind).eval()
    assert any(name.endswith(".modeling_primal") for name in sys.modules)
    torch.testing.assert_close(full(**batch).logits, model(**batch).logits)
    base = transformers.AutoModel.from_pretrained(folder, **kind).eval()
    hidden = base(**batch).last_hidden_state
    torch.testing.assert_close(hidden, model.bert(**batch).last_hidden_state)


@pytest.mark.slow
def test_auto_classes_open_it_in_a_fresh_process(saved):
    model, batch, folder = saved
    torch.save(batch, folder / "batch.pt")
    code = f"""
import torch, transformers
batch = torch.load({str(folder / "batch.pt")!r})
kind = {{"local_files_only": True, "trust_remote_code": True}}
full = transformers.AutoModelForMaskedLM.from_pretrained({str(folder)!r}, **kind).eval()
base = transformers.AutoModel.from_pretrained({str(folder)!r}, **kind).eval()
torch.save((full(**batch).logits, base(**batch).last_hidden_state), {str(folder / "out.pt")!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    logits, hidden = torch.load(folder / "out.pt")
    torch.testing.assert_close(logits, model(**batch).logits)
    torch.testing.assert_close(hidden, model.bert(**batch).last_hidden_state)


def test_a_plain_folder_opens_too(tmp_path):
    model, batch = ARCHITECTURES["electra"]()
    model.eval().save_pretrained(tmp_path)
    again = pa.from_pretrained(str(tmp_path)).eval()
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits)


def test_a_folder_is_adapted(tmp_path):
    model, batch = ARCHITECTURES["bert"]()
    model.save_pretrained(tmp_path)
    settings = AdaptSettings(layerwise=1, steps=1)
    found = pa.adapt_(tmp_path, [batch, batch], rank=4, settings=settings, teacher=str(tmp_path))
    assert type(found.model) is transformers.BertForMaskedLM
    assert len(pa.plan(found.model, 0).rows) == 2
    assert found.to_json()["model"] is None
    pa.save_pretrained(found.model, tmp_path / "adapted")


def test_a_pipeline_takes_it(saved):
    model, _, _ = saved
    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", *map(chr, range(97, 123))]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=2)
    assert len(fill("a b [MASK] c")) == 2


def test_refusals(tmp_path):
    encoder = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = pa.convert_(torch.nn.Sequential(encoder), rank=2)
    with pytest.raises(TypeError, match="expected one of transformers, or save"):
        pa.save_pretrained(model, tmp_path)
