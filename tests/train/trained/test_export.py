"""Exported runs compute what the run computes; a file that does not is refused."""

import numpy as np
import pytest
import torch

pytest.importorskip("lightning_fabric")

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.train.trained import export
from primal_attention.train.trained.deployed import Deployed


def test_the_deployed_function_takes_raw_values(own_run):
    model = pa.load_run(own_run)
    rng = np.random.default_rng(0)
    series = [3 + 2 * rng.standard_normal((2, n)) for n in (5, 12)]
    series[0][1, 2] = np.nan
    inputs, padding = torch.zeros(2, 12, 2), torch.ones(2, 12, dtype=torch.bool)
    for i, one in enumerate(series):
        inputs[i, : one.shape[1]] = torch.from_numpy(one.T)
        padding[i, : one.shape[1]] = False
    inputs[padding] = 1e9  # what stands there is ignored
    with torch.inference_mode():
        found = Deployed(model).eval()(inputs, padding)
    np.testing.assert_allclose(found, model.predict_proba(series), atol=1e-5)


def test_safetensors_is_a_folder_for_the_hub(own_run, tmp_path, sensors):
    found = export.export_run(own_run, "safetensors", tmp_path / "hub")
    assert found.difference == 0
    names = {path.name for path in found.path.iterdir()}
    assert names == {
        "config.json", "run.json", "reader.json", "model.safetensors", "README.md", "result.json",
    }  # fmt: skip
    again = pa.load_run(found.path)
    np.testing.assert_array_equal(
        again.predict_proba(sensors), pa.load_run(own_run).predict_proba(sensors)
    )
    assert "validation accuracy" in (found.path / "README.md").read_text()
    assert str(sensors.parent) not in (found.path / "run.json").read_text()


@pytest.mark.slow
def test_a_program_of_torch_for_every_batch_and_length(own_run, tmp_path):
    found = export.export_run(own_run, "torch", tmp_path / "model.pt2")
    assert found.dynamic == ("batch", "length")
    assert found.difference < 1e-5
    with open(found.path, "rb") as file:
        targets = {str(node.target) for node in torch.export.load(file).graph.nodes}
    assert not [target for target in targets if "primal_attention" in target]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["primal", "softmax", "linear"])
@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_every_format_and_some_attentions(form, attention, sensors, tmp_path):
    pytest.importorskip("onnxruntime")
    from primal_attention.train import train
    from primal_attention.train.config import settings_for

    where = {"data": str(sensors), "target": "state", "id": "machine", "time": "at"}
    small = {"width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 1}
    run = train(settings_for("", (attention,), **where, **small), root=tmp_path).run
    found = export.export_run(run, form, tmp_path / "model")
    assert found.difference < 1e-4
    assert found.dynamic == ("batch", "length")


def test_what_differs_is_refused(own_run, tmp_path, monkeypatch):
    honest = export.save_folder

    def changed(model, folder):
        with torch.no_grad():
            model.module.output.bias += torch.tensor([1.0, 0.0])
        honest(model, folder)
        with torch.no_grad():
            model.module.output.bias -= torch.tensor([1.0, 0.0])

    monkeypatch.setattr(export, "save_folder", changed)
    with pytest.raises(RunError, match=r"differs from .* by 0\.\d+; expected 0.0001"):
        export.export_run(own_run, "safetensors", tmp_path / "hub")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_file_that_differs_does_not_replace_the_one_before(form, own_run, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    (tmp_path / "model").write_bytes(b"the one before")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match=r"differs from"):
        export.export_run(own_run, form, tmp_path / "model")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [
        ("model", b"the one before")
    ]


def test_unknown_formats(own_run):
    with pytest.raises(ValueError, match=r"format is 'onx' \(did you mean 'onnx'\?\)"):
        export.export_run(own_run, "onx")
