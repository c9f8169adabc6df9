"""Converted models of transformers as programs for any batch and length."""

import copy
import json

import pytest
import torch

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.train.trained.converted import Named, export_converted, is_converted
from primal_attention.train.trained.export import TOLERANCE

from ...adapters.architectures import ARCHITECTURES

transformers = pytest.importorskip("transformers")
REFUSED = {"mpnet", "deberta"}  # are not converted
NO_EXAMPLE = {"decision-transformer"}


def saved(name, folder, **options):
    torch.manual_seed(0)
    model, _ = ARCHITECTURES[name]()
    pa.convert_(model, layers="all", **options)
    with torch.no_grad():  # away from the silent start
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    pa.save_pretrained(model, folder)
    return model.eval()


@pytest.mark.parametrize("name", ["bert", "llama", "albert"])
def test_a_program_of_torch(name, tmp_path):
    model = saved(name, tmp_path)
    found = export_converted(tmp_path, "torch")
    assert found.path == tmp_path / "model.pt2"
    assert found.dynamic == ("batch", "length")
    program = torch.export.load(found.path).module()
    ids = torch.randint(5, 20, (5, 11))
    mask = torch.ones_like(ids)
    mask[3, 7:] = 0
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    torch.testing.assert_close(program(ids, mask)[mask.bool()], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torch", "onnx"])
@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - REFUSED - NO_EXAMPLE))
def test_every_architecture(name, form, tmp_path):
    if form == "onnx":
        pytest.importorskip("onnxscript")
    saved(name, tmp_path)
    found = export_converted(tmp_path, form)
    assert found.difference <= TOLERANCE
    assert found.compared >= 3


def test_onnx_by_the_names_of_the_inputs(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = saved("bert", tmp_path)
    found = export_converted(tmp_path, "onnx", tmp_path / "bert.onnx")
    session = onnxruntime.InferenceSession(str(found.path), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask"]
    ids = torch.randint(5, 20, (4, 9))
    given = {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    made = torch.from_numpy(session.run(None, given)[0])
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


def test_a_program_that_differs_is_not_written(tmp_path, monkeypatch):
    saved("bert", tmp_path)
    before = copy.deepcopy(sorted(tmp_path.iterdir()))
    calls = []

    def shifted(self, *inputs):
        calls.append(1)
        out = self.model(**dict(zip(self.names, inputs, strict=True))).logits
        return out + (0.0 if len(calls) == 1 else 1.0)  # the first call is the export

    monkeypatch.setattr(Named, "forward", shifted)
    with pytest.raises(RunError, match=r"model\.pt2 differs from the model by"):
        export_converted(tmp_path, "torch")
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_a_converted_model(tmp_path):
    assert not is_converted(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert not is_converted(tmp_path)
    saved("bert", tmp_path / "one")
    assert is_converted(tmp_path / "one")


def test_a_model_without_an_example(tmp_path):
    saved("decision-transformer", tmp_path)
    with pytest.raises(ValueError, match="takes states, for which no example is known"):
        export_converted(tmp_path, "torch")
