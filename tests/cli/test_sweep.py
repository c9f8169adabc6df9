"""`primal sweep` from the command line."""

import csv
import json

import numpy as np
import pytest

TINY = (
    "epochs=2", "width=8", "heads=2", "feedforward=8", "--attention", "primal", "--layers", 1,
)  # fmt: skip


@pytest.fixture(autouse=True)
def registered():
    from primal_attention.cli.app import app
    from primal_attention.cli.sweep import EPILOG, sweep

    if sweep not in [command.callback for command in app.registered_commands]:
        app.command(epilog=EPILOG)(sweep)


def test_a_grid_and_then_a_larger_one(primal, tmp_path):
    words = ("sweep", "uea/BasicMotions", *TINY, "--quiet", "--json", "--out", tmp_path / "s")
    done = primal(*words, "rank=2,3", "eta=0,0.1")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [point["settings"] for point in found["points"]] == [
        {"rank": rank, "eta": eta} for rank in (2, 3) for eta in (0.0, 0.1)
    ]
    assert all(point["finished"] == 1 for point in found["points"])
    assert found["best"] in [point["settings"] for point in found["points"]]
    rows = list(csv.reader((tmp_path / "s" / "map.csv").open()))
    assert [row[0] for row in rows] == ["rank \\ eta", "2", "3"]
    assert len((tmp_path / "s" / "outcomes.jsonl").read_text().splitlines()) == 4
    again = primal(*words, "rank=2,3,4", "eta=0,0.1")
    assert len(json.loads(again.out)["points"]) == 6
    assert len((tmp_path / "s" / "outcomes.jsonl").read_text().splitlines()) == 6


def test_options_of_attentions_are_swept(primal, tmp_path):
    words = ("uea/BasicMotions", *TINY[:-4], "--attention", "performer", "--layers", 1)
    done = primal("sweep", *words, "performer.features=4,8", "lr=0.01", "--out", tmp_path, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["points"]
    assert [point["settings"] for point in found] == [
        {"performer.features": 4}, {"performer.features": 8},
    ]  # fmt: skip
    used = [json.loads(path.read_text())["options"] for path in tmp_path.rglob("config.json")]
    assert sorted(one["performer"]["features"] for one in used) == [4, 8]


def test_tables_and_progress(primal, tmp_path):
    done = primal("sweep", "uea/BasicMotions", *TINY, "rank=2", "--out", tmp_path / "s")
    assert done.code == 0, done.err
    assert "1 finished" in done.out
    assert "by validation accuracy" in done.out
    assert "rank 2 eta 0.1 seed 0: " in done.err
    assert "(1 ended, 1 in all)" in done.err


def test_what_failed_is_told(primal, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise ValueError("the data is gone")

    monkeypatch.setattr("primal_attention.tasks.uea.ArchiveTask.load", broken)
    done = primal("sweep", "uea/BasicMotions", *TINY, "rank=2,3", "--out", tmp_path, "--quiet")
    assert done.code == 1
    assert "the data is gone" in done.out
    monkeypatch.undo()
    words = ("sweep", "uea/BasicMotions", *TINY, "rank=2,3", "--out", tmp_path, "--quiet")
    assert primal(*words).code == 1
    assert primal(*words, "--retry").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rang=2"], "unknown setting 'rang' (did you mean 'rank'?)"),
        (["rank=2:5"], "rank is a range; expected a list of values, or a search"),
        (["rank=0"], "rank is 0; expected"),
        (["performer.features=8,16"], "a key of options is 'performer'"),
        (["primal.feature_maps=exp"], "did you mean 'feature_map'?"),
        (["rank=2", "--seeds", "x"], "--seeds is 'x'"),
        (["rank=2", "--attention", ""], "unknown attention ''"),
        (["rank=2", "--attention", "prima"], "did you mean 'primal'?"),
    ],
)
def test_wrong_usage(primal, words, message):
    done = primal("sweep", "uea/BasicMotions", *words)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_workers(primal, tmp_path):
    words = ("sweep", "uea/BasicMotions", *TINY, "rank=2,3,4", "--workers", 2, "--json")
    done = primal(*words, "--out", tmp_path)
    assert done.code == 0, done.err
    assert sum(point["finished"] for point in json.loads(done.out)["points"]) == 3


@pytest.mark.slow
def test_a_sweep_of_runs_that_learn_to_act(primal, tmp_path):
    pytest.importorskip("mujoco")
    h5py = pytest.importorskip("h5py")
    (tmp_path / "d4rl").mkdir()
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "d4rl" / "hopper_medium.hdf5", "w") as file:
        file["observations"] = rng.normal(size=(60, 11)).astype(np.float32)
        file["actions"] = rng.uniform(-1, 1, (60, 3)).astype(np.float32)
        file["rewards"] = rng.random(60, np.float32)
        file["terminals"] = np.arange(60) % 20 == 19
    small = ["context=2", "width=8", "heads=2", "feedforward=8", "epochs=1", "epoch_steps=2"]
    words = ["rl/hopper-medium", "rank=2,3", "conditioned=true,false", "episodes=1", *small]
    place = ["--data-dir", tmp_path, "--out", tmp_path / "out"]
    done = primal("sweep", *words, *place)
    assert done.code == 0, done.err
    assert "score" in done.out
    assert "accuracy" not in done.out
    assert done.out.count("1 finished") == 4
    assert (tmp_path / "out" / "map.csv").exists()
    again = primal("sweep", *words, *place)
    assert again.err == ""  # nothing was run
    for option, value in (("--recipe", "paper"), ("--protocol", "paper")):
        refused = primal("sweep", "rl/hopper-medium", "rank=2,3", option, value)
        assert (refused.code, "not for rl/hopper-medium" in refused.err) == (2, True)
    wrong = primal("sweep", "rl/hopper-medium", "label_smoothing=0.1", *place)
    assert (wrong.code, "unknown setting 'label_smoothing'" in wrong.err) == (2, True)
    wrong = primal("sweep", "rl/hopper-medium", "conditioned=yes", *place)
    assert "conditioned is 'yes'; expected true or false" in wrong.err
