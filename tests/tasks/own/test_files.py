"""Series of every kind of file and folder."""

import numpy as np
import pytest

from primal_attention.tasks.base import DataError
from primal_attention.tasks.own.columns import Columns
from primal_attention.tasks.own.files import read_cases, stream
from primal_attention.tasks.own.parts import Parts, find, image_folder

TS = "@problemName a\n@dimensions 2\n{label}\n@data\n1,2,3:4,5,6:{one}\n1,2:4,5:{two}\n"


def test_npz_with_and_without_lengths(tmp_path):
    path = tmp_path / "a.npz"
    x = np.arange(12.0).reshape(2, 2, 3)
    np.savez(path, X=x, y=np.array([1.0, 2.0]), lengths=np.array([3, 2]))
    found = read_cases(path, Columns())
    assert found.targets == ["1", "2"]
    np.testing.assert_array_equal(found.cases[0].series, x[0].T)
    np.testing.assert_array_equal(found.cases[1].series, x[1, :, :2].T)
    np.savez(path, X=x[:, 0], y=np.array(["a", "b"]))
    found = read_cases(path, Columns())
    assert found.channels == 1
    assert found.targets == ["a", "b"]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros(2)}, "has the arrays 'x'; expected X and y"),
        ({"X": np.zeros(2), "y": np.zeros(2)}, r"X is \(2,\) of float64"),
        ({"X": np.zeros((2, 1, 3)), "y": np.zeros(3)}, r"y is \(3,\); expected \(2,\)"),
        ({"X": np.full((2, 1, 3), np.inf), "y": np.zeros(2)}, "case 0 of X has an infinite value"),
        (
            {"X": np.zeros((2, 1, 3)), "y": np.zeros(2), "lengths": np.array([1, 4])},
            "lengths are 1 to 4; expected integers of 1 to 3",
        ),
    ],
)
def test_npz_that_is_wrong(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=said):
        read_cases(tmp_path / "a.npz", Columns())


def test_npz_with_objects_is_not_opened(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match="cannot be read"):
        read_cases(tmp_path / "a.npz", Columns())


def test_ts_with_classes_and_with_numbers(tmp_path):
    path = tmp_path / "a.ts"
    path.write_text(TS.format(label="@classLabel true a b", one="b", two="a"))
    assert read_cases(path, Columns()).targets == ["b", "a"]
    path.write_text(TS.format(label="@targetLabel true", one="0.5", two="-2"))
    found = read_cases(path, Columns())
    assert [float(target) for target in found.targets] == [0.5, -2]
    np.testing.assert_array_equal(found.cases[1].series, [[1, 4], [2, 5]])
    path.write_text(TS.format(label="@targetLabel true", one="0.5", two="x"))
    with pytest.raises(DataError, match="line 6: the target is 'x'; expected a finite number"):
        read_cases(path, Columns())


def test_a_folder_of_files_for_each_class(tmp_path):
    for name, values in (("up", [[0, 1], [1, 2]]), ("down", [[1, 0]])):
        (tmp_path / name).mkdir()
        rows = "".join(f"{a},{b}\n" for a, b in values)
        (tmp_path / name / "one.csv").write_text(f"x,y\n{rows}")
    np.save(tmp_path / "up" / "two.npy", np.ones((2, 5)))
    found = read_cases(tmp_path, Columns())
    assert [(case.name, case.target) for case in found.cases] == [
        ("down/one.csv", "down"),
        ("up/one.csv", "up"),
        ("up/two.npy", "up"),
    ]
    assert [case.series.shape for case in found.cases] == [(1, 2), (2, 2), (5, 2)]
    np.save(tmp_path / "up" / "three.npy", np.ones((3, 5)))
    with pytest.raises(DataError, match=r"'up/three.npy' has 3 channels; expected 2"):
        read_cases(tmp_path, Columns())


def write_folder(folder, **files):
    """{class: text of its only file}"""
    for name, text in files.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "one.csv").write_text(text)
    return folder


def test_channels_of_a_folder_are_found_by_name(tmp_path):
    train = write_folder(tmp_path / "train", a="x,y\n1,2\n", b="y,x\n4,3\n")
    found = read_cases(train, Columns())
    assert [case.series.tolist() for case in found.cases] == [[[1, 2]], [[3, 4]]]
    write_folder(tmp_path / "test", a="y,x\n6,5\n")
    parts = Parts.of({"data": str(tmp_path)})
    assert parts.read("test").cases[0].series.tolist() == [[5, 6]]
    write_folder(train, c="x,z\n1,2\n")
    with pytest.raises(DataError, match=r"c/one.csv has no column 'y'; expected the channels"):
        read_cases(train, Columns())
    assert [case.series.shape for case in stream(tmp_path / "test", Columns(), labelled=False,
            together=True)] == [(1, 2)]  # fmt: skip


def test_rows_of_a_folder_are_ordered_by_time(tmp_path):
    folder = write_folder(tmp_path, a="t,x\n3,30\n1,10\n2,20\n", b="t,x\n0,1\n")
    found = read_cases(folder, Columns(time="t"))
    assert found.cases[0].series.tolist() == [[10], [20], [30]]
    write_folder(folder, c="x\n1\n")
    with pytest.raises(DataError, match=r"c/one.csv has no column 't' for --time"):
        read_cases(folder, Columns(time="t"))
    (folder / "c" / "one.csv").write_text("t,x\n1,1\n1,2\n")
    with pytest.raises(DataError, match=r"line 3, column 't': 'c/one.csv' has this time in line 2"):
        read_cases(folder, Columns(time="t"))


def test_files_that_nobody_reads(tmp_path):
    with pytest.raises(DataError, match=r"new\.csv is not there; expected a file or a folder"):
        list(stream(tmp_path / "new.csv", Columns(), labelled=False, together=True))
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(DataError, match=r"ends with '.xlsx'; expected a file that ends with .csv"):
        read_cases(tmp_path / "a.xlsx", Columns())


def test_splits_are_found(tmp_path):
    for name in ("Own_TRAIN.ts", "Own_TEST.ts"):
        (tmp_path / name).write_text("")
    assert find(tmp_path) == (tmp_path / "Own_TRAIN.ts", tmp_path / "Own_TEST.ts")
    for name in ("train", "val"):
        (tmp_path / "f" / name / "a").mkdir(parents=True)
    assert find(tmp_path / "f") == (tmp_path / "f/train", tmp_path / "f/val")
    with pytest.raises(DataError, match="is not there; expected a file or a folder"):
        find(tmp_path / "nothing")
    (tmp_path / "e").mkdir()
    with pytest.raises(DataError, match="holds nothing; expected a folder for each class"):
        find(tmp_path / "e")
    assert image_folder(tmp_path / "f") is None
    (tmp_path / "f/train/a/1.PNG").write_text("")
    assert image_folder(tmp_path / "f") == tmp_path / "f/train"


def test_a_test_set_must_have_the_channels_of_training(tmp_path):
    for name, width in (("train", 2), ("test", 3)):
        np.savez(tmp_path / f"{name}.npz", X=np.zeros((2, width, 4)), y=np.arange(2))
    parts = Parts.of({"data": str(tmp_path)})
    with pytest.raises(DataError, match="has 3 channels; expected 2"):
        parts.read("test")
