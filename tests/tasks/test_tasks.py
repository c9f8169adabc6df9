"""Tasks by name, and what is told about their data."""

import re

import pytest

from primal_attention.tasks import Task, available_tasks, data_status, get_task


def test_names():
    names = available_tasks()
    assert list(names) == sorted(set(names))
    assert {"uea/JapaneseVowels", "uea/BasicMotions", "uea/PEMS-SF"} <= set(names)
    assert len([name for name in names if name.startswith("uea/")]) == 11


@pytest.mark.parametrize("name", available_tasks())
def test_every_task(name):
    task = get_task(name)
    assert isinstance(task, Task)
    assert task.name == name
    assert task.description
    if name.startswith("uea/"):
        assert task.recipe("default", ("primal", "primal"))["model"] == "net"
        assert task.recipe("transformer", ("primal", "primal")) == {}
    assert task.status().task == name


@pytest.mark.parametrize("wrong", ["uea/JapaneseVowel", "JapaneseVowels", "uea/japanesevowels"])
def test_unknown_name(wrong):
    message = (
        f"unknown task {wrong!r} (did you mean 'uea/JapaneseVowels'?); expected one of events/"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        get_task(wrong)


def test_unknown_recipe():
    with pytest.raises(ValueError, match=r"unknown recipe of task 'uea/Heartbeat': 'papr' .*paper"):
        get_task("uea/Heartbeat").recipe("papr", ("primal",))


def test_status_without_a_folder():
    found = {status.task: status for status in data_status()}
    assert tuple(found) == available_tasks()
    assert {name for name, s in found.items() if s.complete} == {
        "images/digits",
        "made/repetition",
        "uea/BasicMotions",
        "uea/JapaneseVowels",
    }
    here, absent = found["uea/JapaneseVowels"], found["uea/FaceDetection"]
    assert set(here.places) == {"train", "test"}
    assert here.places["test"].endswith("JapaneseVowels_TEST.ts.gz")
    assert here.facts == "270/370 cases, 12 channels, length 7-29, 9 classes"
    assert here.missing == ()
    assert absent.places == {}
    assert absent.missing == ("train", "test")
    assert absent.facts == "5890/3524 cases, 144 channels, length 62, 2 classes"
    assert "timeseriesclassification.com" in absent.how_to_get
    assert "/uea/FaceDetection/FaceDetection_TRAIN.ts and " in absent.how_to_get


def test_status_opens_no_file(ts_file, tmp_path):
    ts_file(b"\0 not a set", "uea/Heartbeat/Heartbeat_TRAIN.ts")
    found = get_task("uea/Heartbeat").status(tmp_path)
    assert found.places == {"train": str(tmp_path / "uea/Heartbeat/Heartbeat_TRAIN.ts")}
    assert found.missing == ("test",)
    assert not found.complete
    assert f"{tmp_path}/uea/Heartbeat/Heartbeat_TEST.ts " in found.how_to_get
    assert "TRAIN" not in found.how_to_get
