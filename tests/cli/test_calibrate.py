"""`primal calibrate` on a run and on seeds, and its part of the report."""

import json
import shutil

import numpy as np
import pytest
import torch

from primal_attention import calibration
from primal_attention.report.page import write_page
from primal_attention.tasks.examples import Batch
from primal_attention.train.calibrate import logits, turn_around
from primal_attention.train.judged import open_run


def test_seeds_are_an_ensemble(primal, tiny, tmp_path):
    done = primal(*tiny, "--attention", "primal", "--seeds", "0,1", "--uncertainty", "readout",
                  "--quiet", "--name", "two")  # fmt: skip
    assert done.code == 0, done.err
    folder = tmp_path / "runs" / "two"
    done = primal("calibrate", folder, "--resamples", 20, "--draws", 2, "--json", "--quiet")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert list(found["methods"]) == [
        "as it is", "temperature", "draws of the readout", "ensemble of seeds",
        "ensemble, temperature", "ensemble, draws of the readout",
    ]  # fmt: skip
    assert found["split"] == "test"
    assert len(found["temperatures"]) == 2
    # against the runs themselves
    members = []
    for seed in (0, 1):
        data, model = open_run(folder / f"seed-{seed}")
        members.append(calibration.softmax(logits(model, data.test())))
        stored = json.loads((folder / f"seed-{seed}" / "result.json").read_text())
        labels = data.test().targets.numpy()
        assert (members[-1].argmax(1) == labels).mean() == pytest.approx(stored["accuracy"])
    both = calibration.measure(np.mean(members, 0), labels, resamples=0)
    figures = found["methods"]["ensemble of seeds"]["figures"]
    assert figures["nll"]["value"] == pytest.approx(both["nll"].value)
    alone = np.mean([calibration.nll(one, labels) for one in members])
    assert found["methods"]["as it is"]["figures"]["nll"]["value"] == pytest.approx(alone)
    assert figures["nll"]["value"] <= alone
    same = found["differences"]["temperature"]["accuracy"]
    assert same["value"] == same["low"] == same["high"] == 0
    page = write_page([folder], tmp_path / "page.html", spectra=False).read_text()
    assert "ensemble of seeds" in page
    assert 'id="calibration"' in page
    told = primal("calibrate", folder / "seed-0", "--resamples", 5, "--draws", 2)
    assert told.code == 0, told.err
    assert "as it is" in told.out
    assert "temperatures" in told.out
    assert "ensemble of seeds" not in told.out


def test_what_is_refused(primal, trained, tmp_path):
    (trained / "best.safetensors").unlink()
    done = primal("calibrate", trained)
    assert done.code == 1
    assert "has no best.safetensors" in done.err
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    (seeds / "seeds.json").write_text(json.dumps({"seeds": [3]}))
    done = primal("calibrate", seeds)
    assert done.code == 1
    assert "no finished seed" in done.err
    shutil.rmtree(seeds)


def test_turned_around_are_the_valid_positions():
    padding = torch.tensor([[False, False, False], [False, False, True]])
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    expected = [[3, 2, 1], [5, 4, 0]]
    assert turn_around(Batch(tokens, padding, tokens)).tolist() == expected
    series = tokens[..., None].float().expand(-1, -1, 2)
    assert turn_around(Batch(series, padding, tokens))[..., 1].tolist() == expected
    images = torch.arange(8.0).view(1, 2, 2, 2)
    turned = turn_around(Batch(images, torch.zeros(1, 5, dtype=torch.bool), tokens))
    assert turned.flatten().tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
