"""`primal explain` on a run of series, on bytes, and on a Hugging Face classifier."""

import json

import pytest
import torch

from primal_attention import calibration
from primal_attention.report.page import write_page


def test_a_case_of_a_run(primal, trained, tmp_path):
    done = primal("explain", trained, "--case", 1, "--budget", 40, "--most", 2, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert len(found["units"]) == 16
    assert found["exact"]
    assert found["evaluations"] <= 40
    written = json.loads((trained / "explain-1.json").read_text())
    assert written["sentence"] == found["sentence"]
    page = write_page([trained], tmp_path / "page.html", spectra=False).read_text()
    assert 'id="explain"' in page
    said = primal("explain", trained, "--case", 1, "--budget", 5, "--order", "random",
                  "--out", tmp_path / "out")  # fmt: skip
    assert said.code == 0, said.err
    assert said.out.startswith("case 1 (true class: ")
    assert (tmp_path / "out" / "explain-1.json").exists()


def test_what_is_refused(primal, trained, tmp_path):
    for words, message in (
        (("--case", 999), "the case is 999; expected 0 to"),
        (("--text", trained / "config.json"), "--text was given with the run"),
        (("--order", "alphabet"), "--order is 'alphabet'"),
        (("--split", "train"), "--split is 'train'"),
    ):
        done = primal("explain", trained, *words)
        assert done.code in (1, 2)
        assert message in done.err
    done = primal("explain", tmp_path)
    assert done.code == 1
    assert "expected a run, a saved estimator or a Hugging Face classifier" in done.err


@pytest.mark.slow
def test_a_hugging_face_classifier(primal, tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "##ness", "bad", "film", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, num_labels=2,
    )  # fmt: skip
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text("a film\ngoodness a bad film\n")
    for order in ("graph", "attention", "gradient", "greedy"):
        done = primal("explain", tmp_path, "--text", tmp_path / "text.txt", "--case", 1,
                      "--order", order, "--json")  # fmt: skip
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["words"] == ["goodness", "a", "bad", "film"]
        assert found["units"][0] == [1, 2]
    assert "<p>" in (tmp_path / "explain-1.html").read_text()
    done = primal("explain", tmp_path)
    assert "expected --text" in done.err
    table = tmp_path / "texts.csv"
    table.write_text("text,label\na bad film,0\ngoodness a film,LABEL_1\nbad a bad a film,1\n")
    done = primal("calibrate", tmp_path, "--data", table, "--resamples", 10, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["noun"], found["split"]) == ("texts", "file")
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    said = []
    for text in ("a bad film", "goodness a film", "bad a bad a film"):  # alone, without padding
        with torch.no_grad():
            said.append(model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1))
    expected = calibration.nll(torch.stack(said).double().numpy(), [0, 1, 1])
    figures = found["methods"]["as it is"]["figures"]
    assert figures["nll"]["value"] == pytest.approx(expected, rel=1e-4)
    table.write_text("text,label\na film,2\n")
    done = primal("calibrate", tmp_path, "--data", table)
    assert done.code == 1
    assert "found '2'; expected one of LABEL_0, LABEL_1" in done.err
