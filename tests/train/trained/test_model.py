"""A trained run predicts what its training has evaluated, from arrays and from files."""

import json
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("lightning_fabric")

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.tasks.own.columns import Columns
from primal_attention.tasks.own.files import read_cases
from primal_attention.train import RunConfig, train


@pytest.fixture(scope="module")
def model(own_run):
    return pa.load_run(own_run)


@pytest.fixture(scope="module")
def cases(sensors):
    return read_cases(sensors, Columns("state", "machine", "at")).cases


def test_probabilities_of_arrays_and_of_the_file_are_the_same(model, cases, sensors):
    arrays = [case.series.T for case in cases]
    found = model.predict_proba(arrays)
    assert found.shape == (24, 2)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(found, model.predict_proba(str(sensors)), atol=1e-6)
    labels = model.predict(arrays)
    assert list(labels) == [model.classes[i] for i in found.argmax(1)]


def test_opening_a_run_draws_no_random_numbers(own_run):
    state = torch.get_rng_state()
    pa.load_run(own_run)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_case_alone_is_the_case_in_a_batch(model, cases):
    arrays = [case.series.T for case in cases]
    alone = np.concatenate([model.predict_proba([one]) for one in arrays])
    np.testing.assert_allclose(alone, model.predict_proba(arrays), atol=1e-6)


def test_the_result_of_the_run_is_that_of_its_model(tmp_path):
    small = {"width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 2, "model": "net"}
    config = RunConfig(task="uea/BasicMotions", norm="pre", attention=("primal",), **small)
    result = train(config, root=tmp_path)
    from primal_attention.tasks import get_task

    test = get_task("uea/BasicMotions").load(splits=["test"])["test"]
    model = pa.load_run(result.run)
    found = model.predict(np.stack([x.T for x in test.series]))
    truth = np.array(test.classes)[test.labels]
    assert np.mean(found == truth) == pytest.approx(result.accuracy)
    # a run of an earlier version, which has no reader.json, is asked for its data
    (result.run / "reader.json").unlink()
    again = pa.load_run(result.run).predict(np.stack([x.T for x in test.series]))
    assert list(again) == list(found)


def test_longer_series_are_cut_as_in_training(model, cases):
    x = cases[0].series.T
    longest = np.pad(x, ((0, 0), (0, 12 - x.shape[1])))
    longer = np.concatenate([longest, np.ones((2, 30))], axis=1)
    np.testing.assert_allclose(
        model.predict_proba([longer]), model.predict_proba([longest]), atol=1e-6
    )


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.zeros((2, 3, 4)), "case 0 has 3 channels; expected 2"),
        (np.zeros(4), r"X has shape \(4,\); expected \(cases, channels, timepoints\)"),
        ([], "0 cases"),
    ],
)
def test_wrong_arrays(model, X, said):
    with pytest.raises(ValueError, match=said):
        model.predict(X)


def test_folders_that_are_no_runs(tmp_path, own_run):
    with pytest.raises(RunError, match="is not there; expected the folder of a finished run"):
        pa.load_run(tmp_path / "no")
    with pytest.raises(RunError, match=r"has no config.json"):
        pa.load_run(tmp_path)
    run = shutil.copytree(own_run, tmp_path / "run")
    weights = run / "best.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match=r"best.safetensors is damaged"):
        pa.load_run(run)
    weights.unlink()
    with pytest.raises(RunError, match=r"has no weights; expected best.safetensors"):
        pa.load_run(run)
    (run / "best.safetensors").write_bytes(content)
    reader = json.loads((run / "reader.json").read_text())
    mean = reader["normaliser"]["mean"]
    for wrong in (
        {"shape": None, "normaliser": {}},
        {"normaliser": {"mean": mean[:-1], "deviation": [1.0] * len(mean)}},
        {"normaliser": {"mean": mean, "deviation": [0.0] * len(mean)}},
        {"normaliser": {"mean": [1e308] * len(mean), "deviation": [1.0] * len(mean)}},
        {"classes": reader["classes"][:-1]},
        {"classes": [*reader["classes"][:-1], []]},
    ):
        (run / "reader.json").write_text(json.dumps({**reader, **wrong}))
        with pytest.raises(RunError, match=r"reader.json is damaged"):
            pa.load_run(run)
    huge = {"shape": {**reader["shape"], "channels": 2**62}, "normaliser": None}
    (run / "reader.json").write_text(json.dumps({**reader, **huge}))
    with pytest.raises(RunError, match=r"run is damaged: its model cannot be built"):
        pa.load_run(run)
    config = json.loads((run / "config.json").read_text())
    for wrong in ({"width": "x"}, {"task": "no"}, {"rank": 10**30}, {"colour": 3}):
        (run / "config.json").write_text(json.dumps({**config, **wrong}))
        with pytest.raises(RunError, match=r"run"):
            pa.load_run(run)
