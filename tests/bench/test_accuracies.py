"""Accuracies from files and run folders, matched to candidates."""

import json

import pytest

from primal_attention.bench import match_accuracies, read_accuracies
from primal_attention.train import RunError
from primal_attention.train.config import RunConfig


def write_run(folder, accuracy, **settings):
    folder.mkdir(parents=True)
    config = RunConfig(task="uea/JapaneseVowels", **settings)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "result.json").write_text(json.dumps({"accuracy": accuracy}))
    return folder


def test_json_and_csv(tmp_path):
    (tmp_path / "a.json").write_text('{"softmax": 0.985, "primal:tied": 97.5}')
    (tmp_path / "a.csv").write_text("name,accuracy\nsoftmax, 0.975\nfloor,12\n")
    found = read_accuracies([tmp_path / "a.json", tmp_path / "a.csv"])
    assert found == {
        "softmax": pytest.approx(98.0), "primal:tied": 97.5, "floor": 12.0,
    }  # fmt: skip


def test_run_folders(tmp_path):
    both = ("softmax", "softmax")
    write_run(tmp_path / "runs" / "a" / "seed-0", 0.9, attention=both)
    write_run(tmp_path / "runs" / "a" / "seed-1", 0.8, attention=both)
    free = write_run(tmp_path / "runs" / "b", 0.7, weights="free")
    assert read_accuracies([tmp_path / "runs"]) == {
        "softmax": pytest.approx(85.0), "primal:free": pytest.approx(70.0),
    }  # fmt: skip
    assert read_accuracies([free]) == {"primal:free": pytest.approx(70.0)}
    assert read_accuracies([free / "result.json"]) == {"primal:free": pytest.approx(70.0)}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", '{"softmax": "high"}', "has the accuracy 'high' of softmax"),
        ("a.json", '{"softmax": 101}', "has the accuracy 101 of softmax"),
        ("a.json", '{"softmax": -0.1}', "expected 0 to 1, or per cent"),
        ("a.json", '{"softmax": NaN}', "has the accuracy nan"),
        ("a.json", "[1]", "expected {name: accuracy}"),
        ("a.json", "{", "is not JSON"),
        ("a.csv", "softmax\n", "expected name,accuracy"),
        ("b.csv", None, "cannot read"),
    ],
)
def test_wrong_files(tmp_path, name, text, expected):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(RunError) as error:
        read_accuracies([tmp_path / name])
    assert expected in str(error.value)


def test_folders_without_an_answer(tmp_path):
    with pytest.raises(RunError, match=r"has no result\.json in it"):
        read_accuracies([tmp_path])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("config.json", "null", r"config.json holds a NoneType; expected a JSON object"),
        ("config.json", '{"task": 3}', r"config.json is damaged"),
        ("result.json", "[]", r"result.json holds a list; expected a JSON object"),
        ("result.json", "{}", r"has the accuracy None of softmax"),
    ],
)
def test_damaged_runs(tmp_path, name, text, expected):
    (write_run(tmp_path / "run", 0.5, attention=("softmax",)) / name).write_text(text)
    with pytest.raises(RunError, match=expected):
        read_accuracies([tmp_path])


def test_layers_with_attentions_of_their_own(results, tmp_path):
    write_run(tmp_path / "mixed", 0.5, attention=("softmax", "primal"))
    found = read_accuracies([tmp_path])
    assert found == {"softmax+primal:data": 50.0}
    results.candidates += ("softmax+primal:data",)
    assert match_accuracies(results, found) == {"softmax+primal:data": 50.0}


def test_primal_is_primal_tied(results):
    assert match_accuracies(results, {"primal:tied": 90.0, "primal:free": 80.0}) == {"primal": 90.0}
    assert match_accuracies(results, {"floor": 1.0}) == {"floor": 1.0}
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        match_accuracies(results, {"sofmax": 1.0})
