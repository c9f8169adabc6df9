"""`primal calibrate` on a run and on seeds, and its part of the report."""

import json
import shutil

import numpy as np
import pytest
import torch

from primal_attention import calibration
from primal_attention.report.page import write_page
from primal_attention.tasks.examples import Batch
from primal_attention.train.asked import turn_around
from primal_attention.train.calibrate import logits
from primal_attention.train.judged import open_asked


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
        opened = open_asked(folder / f"seed-{seed}")
        batches = list(opened.judged.batches())
        said = [logits(opened.judged, opened.model, batch) for batch in batches]
        members.append(calibration.softmax(np.concatenate(said)))
        stored = json.loads((folder / f"seed-{seed}" / "result.json").read_text())
        labels = np.concatenate([opened.judged.labels(batch).numpy() for batch in batches])
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


def test_events_with_their_gaps(primal, event_run, tmp_path):
    done = primal("calibrate", event_run, "--resamples", 20, "--json", "--quiet")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["split"], found["noun"], found["temperatures"]) == ("validation", "events", [])
    result = json.loads((event_run / "result.json").read_text())
    figures = found["methods"]["as it is"]["figures"]
    assert figures["accuracy"]["value"] == pytest.approx(result["accuracy"])
    assert figures["nll"]["value"] == pytest.approx(result["loss"], rel=1e-5)
    assert found["gaps"]["pit"] == pytest.approx(result["pit"])
    done = primal("explain", event_run, "--case", 1, "--at", 6, "--budget", 30, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["case"] == "1-6"
    assert len(told["units"]) == 5
    assert told["exact"]
    assert all(word.endswith("before") for word in told["words"])
    done = primal("explain", event_run, "--at", 99)
    assert done.code == 1
    assert "--at is 99; expected 2 to 8, an event of this case" in done.err
    page = write_page([event_run], tmp_path / "page.html", spectra=False).read_text()
    assert "of the gaps lie in the middle 80 %" in page
    assert 'id="explain"' in page


@pytest.mark.slow
def test_a_language(primal, text_run):
    done = primal("calibrate", text_run, "--resamples", 20, "--quiet")
    assert done.code == 0, done.err
    assert "test set, " in done.out
    assert " tokens, " in done.out
    assert "temperatures" in done.out
    stored = json.loads((text_run / "calibration.json").read_text())
    result = json.loads((text_run / "result.json").read_text())
    assert stored["methods"]["as it is"]["figures"]["nll"]["value"] == pytest.approx(
        result["loss"], rel=1e-4
    )
    done = primal("explain", text_run, "--split", "test", "--at", 8, "--quiet", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["words"] == ["one", "two", "three", "four", r"'\n'", "one", "two"]
    assert (told["true"], told["predicted"]) == ("three", "three")
    assert told["removals"]  # without the "two" before it, it is not "three"
    assert 6 in told["removals"][0]["units"]


def test_numbers_are_refused(primal, tiny, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 1, 6))
    np.savez(tmp_path / "numbers.npz", X=x, y=x.sum((1, 2)))
    done = primal("train", "--data", "numbers.npz", "--epochs", 1, "--quiet", "--name", "n",
                  "--width", 16, "--heads", 2, "--feedforward", 16)  # fmt: skip
    assert done.code == 0, done.err
    for command in ("calibrate", "explain"):
        done = primal(command, tmp_path / "runs" / "n")
        assert done.code == 1
        assert "learned no classes (own/values); expected a run that did" in done.err


def test_a_saved_estimator(primal, tmp_path):
    pytest.importorskip("sklearn")
    from primal_attention.train.estimator import PrimalFormerClassifier

    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    x = rng.normal(size=(24, 1, 12)) + y[:, None, None]
    made = PrimalFormerClassifier(
        ensemble="best", width=8, heads=2, feedforward=8, rank=4, steps=4, epochs=1, folds=2,
        groups=2, random_state=0,
    ).fit(x, np.array(["low", "high"])[y])  # fmt: skip
    folder = tmp_path / "saved"
    made.save(folder)
    np.savez(tmp_path / "new.npz", X=x, y=np.array(["low", "high"])[y])
    done = primal("calibrate", folder)
    assert done.code == 1
    assert "is a saved estimator without cases; expected --data FILE" in done.err
    done = primal("calibrate", folder, "--data", "new.npz", "--resamples", 10, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert len(found["temperatures"]) == 2  # of the two halves
    order = {name: i for i, name in enumerate(made.classes_)}
    labels = np.array([order[name] for name in np.array(["low", "high"])[y]])
    expected = calibration.nll(made.predict_proba(x), labels)
    assert found["methods"]["as it is"]["figures"]["nll"]["value"] == pytest.approx(expected)
    done = primal("explain", folder, "--data", "new.npz", "--case", 3, "--units", 4, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["true"] == "high"
    for one in told["removals"]:
        kept = [i for i in range(12) if i not in one["positions"]]
        said = made.predict_proba([x[3][:, kept]])[0]
        assert said.argmax() == one["prediction"] != told["prediction"]
        assert said[told["prediction"]] == pytest.approx(one["probability"])
    assert not (folder / "explain-3.json").exists()  # a saved estimator is a whole
    made.save(folder)


def test_the_frozen_bank_has_no_attention(primal, tmp_path):
    pytest.importorskip("sklearn")
    from primal_attention.train.estimator import PrimalFormerClassifier, PrimalFormerRegressor

    rng = np.random.default_rng(0)
    y = np.arange(12) % 2
    x = rng.normal(size=(12, 1, 12)) + y[:, None, None]
    np.savez(tmp_path / "new.npz", X=x, y=y)
    small = {"ensemble": "fast", "groups": 2, "random_state": 0}
    PrimalFormerClassifier(**small).fit(x, y).save(tmp_path / "bank")
    done = primal("explain", tmp_path / "bank", "--data", "new.npz", "--units", 3, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["order"] == "random"
    done = primal("explain", tmp_path / "bank", "--data", "new.npz", "--order", "attention")
    assert done.code == 1
    assert "has no network, only the frozen bank; expected --order random" in done.err
    PrimalFormerRegressor(**small).fit(x, y + 0.5).save(tmp_path / "numbers")
    for command in ("calibrate", "explain"):
        done = primal(command, tmp_path / "numbers", "--data", "new.npz")
        assert done.code == 1
        assert "PrimalFormerRegressor, which says no classes of series" in done.err


def test_data_are_for_models_without_cases(primal, trained, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    done = primal("calibrate", trained, "--data", "a.csv")
    assert done.code == 1
    assert "--data was given with the run" in done.err


def judged_and_explained(primal, run, page):
    """Both commands on a run, and what the report shows of them."""
    done = primal("calibrate", run, "--resamples", 10, "--json", "--quiet")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    accuracy = json.loads((run / "result.json").read_text())["accuracy"]
    assert found["methods"]["as it is"]["figures"]["accuracy"]["value"] == pytest.approx(accuracy)
    done = primal("explain", run, "--case", 1, "--budget", 20, "--json", "--quiet")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    text = write_page([run], page, spectra=False).read_text()
    assert 'id="calibration"' in text
    assert 'id="explain"' in text
    return told


def test_images(primal, tiny, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("sklearn")
    done = primal(
        "train", "images/digits", "--attention", "softmax,primal", "--width", 16, "--heads", 2,
        "--feedforward", 16, "--rank", 4, "--epochs", 1, "--epoch-steps", 3, "--warmup-steps", 1,
        "--quiet", "--name", "i",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = judged_and_explained(primal, tmp_path / "runs" / "i", tmp_path / "page.html")
    assert not told["exact"]  # an image has no padding
    assert told["words"][0] == "part 0"


def test_bytes_of_reviews(primal, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIMAL_ATTENTION_CACHE", str(tmp_path / "cache"))
    for split in ("train", "test"):
        for name, words in (("pos", "a good film"), ("neg", "it is bad")):
            place = tmp_path / "data" / "aclImdb" / split / name
            place.mkdir(parents=True)
            for number in range(8):
                (place / f"{number}_1.txt").write_text(f"{words}, {split} {number}")
    done = primal(
        "train", "lra/text", "--data-dir", tmp_path / "data", "--attention", "primal", "--width",
        16, "--heads", 2, "--feedforward", 16, "--rank", 4, "--epochs", 1, "--epoch-steps", 2,
        "--warmup-steps", 1, "--batch-size", 4, "--quiet", "--name", "t",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = judged_and_explained(primal, tmp_path / "runs" / "t", tmp_path / "page.html")
    assert told["exact"]
    assert told["words"][:3] in (["a", "good", "film"], ["it", "is", "bad"])
