"""The sets by name: facts, places, and the guard between training and test."""

import dataclasses
import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from primal_attention.tasks import DataError, SeriesSet, get_task
from primal_attention.tasks.folders import ENVIRONMENT
from primal_attention.tasks.uea import read_ts
from primal_attention.tasks.uea.archive import (
    ARCHIVE,
    EMBEDDED,
    check_facts,
    find_splits,
    refuse_same_cases,
)

FOLDER = files("primal_attention.tasks.uea") / "embedded"
FILES = [(name, split) for name in EMBEDDED for split in ("train", "test")]


def load_set(name, data_dir=None, **options):
    return get_task(f"uea/{name}").load(data_dir, **options)


def file_name(name, split):
    return f"{name}_{split.upper()}.ts"


def content(name, split):
    return gzip.decompress((FOLDER / name / f"{file_name(name, split)}.gz").read_bytes())


@pytest.fixture
def own_folder(ts_file, tmp_path):
    """A data folder with a copy of BasicMotions whose first value is another one."""

    def make(layout="uea/", ending=".ts", splits=("train", "test")):
        for split in splits:
            text = re.sub(rb"(@data\r?\n)[^,]*", rb"\g<1>77.5", content("BasicMotions", split))
            path = f"{layout}BasicMotions/{file_name('BasicMotions', split)}"
            packed = gzip.compress(text) if ending == ".ts.gz" else text
            ts_file(packed, path.removesuffix(".ts") + ending)
        return tmp_path

    return make


# -- facts -----------------------------------------------------------------------------------------


def test_the_ten_sets_of_the_paper_and_one_more():
    assert len(ARCHIVE) == 11
    assert str(ARCHIVE["PEMS-SF"]) == "267/173 cases, 963 channels, length 144, 7 classes"
    assert str(ARCHIVE["SpokenArabicDigits"]).endswith("13 channels, length 4-93, 10 classes")


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets(name):
    found = load_set(name)
    assert list(found) == ["train", "test"]
    assert [s.name for s in found.values()] == [f"{name} TRAIN", f"{name} TEST"]
    assert found["train"].classes == found["test"].classes
    assert not any(np.isnan(x).any() for s in found.values() for x in s.series)


@pytest.mark.parametrize(
    "name",
    [
        "JapaneseVowels",
        "Handwriting",
        "UWaveGestureLibrary",
        pytest.param("SpokenArabicDigits", marks=pytest.mark.slow),
    ],
)
def test_real_sets(real_file, name):
    folder = real_file(name, "TRAIN").parents[2]
    found = get_task(f"uea/{name}").load(folder)
    assert tuple(map(len, found.values())) == ARCHIVE[name].cases


def test_all_differences_are_told():
    s = load_set("BasicMotions", splits=["train"])["train"]
    wrong = dataclasses.replace(s.subset(range(30)), classes=(*s.classes, "Sleeping"))
    with pytest.raises(
        DataError,
        match=r"^BasicMotions TRAIN is not the archive's: it has 30 cases \(expected 40\), "
        r"5 classes \(expected 4\), 3 classes with cases \(expected 4\)$",
    ):
        check_facts(wrong, ARCHIVE["BasicMotions"], "train")
    short = SeriesSet("x", [x[:-1, :5] for x in s.series], s.labels, s.classes)
    with pytest.raises(DataError, match=r"5 channels .expected 6., 99 lengths .expected 100.$"):
        check_facts(short, ARCHIVE["BasicMotions"], "train")


def test_train_and_test_have_facts_of_their_own():
    found = load_set("JapaneseVowels")
    for split, other in (("train", "test"), ("test", "train")):
        with pytest.raises(DataError, match=r"cases \(expected .*lengths \(expected"):
            check_facts(found[split], ARCHIVE["JapaneseVowels"], other)


def test_a_set_with_a_case_less_is_refused(ts_file, tmp_path):
    text = content("BasicMotions", "train").rstrip().rpartition(b"\n")[0]
    ts_file(text, "uea/BasicMotions/BasicMotions_TRAIN.ts")
    with pytest.raises(DataError, match=r"it has 39 cases \(expected 40\)$"):
        load_set("BasicMotions", tmp_path, splits=["train"])


# -- the guard -------------------------------------------------------------------------------------


def test_the_test_set_must_not_be_the_training_set(ts_file, tmp_path):
    for split in ("train", "test"):  # the facts of the two are the same
        ts_file(
            content("BasicMotions", "train"), f"BasicMotions/{file_name('BasicMotions', split)}"
        )
    with pytest.raises(
        DataError,
        match=r"^40 of the 40 cases of BasicMotions TEST are in BasicMotions TRAIN as well; "
        r"expected a test set apart from the training set$",
    ):
        load_set("BasicMotions", tmp_path)
    assert len(load_set("BasicMotions", tmp_path, splits=["test"])["test"]) == 40


def test_guard(make_set):
    train, test = make_set(40, seed=1, longest=9), make_set(40, seed=2, longest=9)
    refuse_same_cases(train, test)
    shuffled = train.subset(np.random.default_rng(0).permutation(40))
    copy = dataclasses.replace(shuffled, series=[x.copy() for x in shuffled.series])
    both = dataclasses.replace(
        train, series=train.series + test.series, labels=np.append(train.labels, test.labels)
    )
    for pair in (
        (train, copy),
        (train, both),
        (both, test),
        (train, train.subset([3])),
        (train.subset([3]), train),
    ):
        with pytest.raises(
            DataError, match=r"of the \d+ cases of random . are in random . as well"
        ):
            refuse_same_cases(*pair)


def test_guard_allows_a_few_repeated_cases(make_set):
    """Data sets have them: silence is silence."""
    train, test = make_set(40, seed=1, longest=9), make_set(40, seed=2, longest=9)
    test.series[:4] = train.series[:4]
    refuse_same_cases(train, test)
    test.series[4] = train.series[4]
    with pytest.raises(DataError, match="5 of the 40 cases"):
        refuse_same_cases(train, test)


def test_guard_knows_the_shape_and_both_zeros():
    def one(x):
        return SeriesSet("s", [np.array(x)], np.array([0]), ("a",))

    refuse_same_cases(one([[1.0, 2.0]]), one([[1.0], [2.0]]))
    with pytest.raises(DataError):
        refuse_same_cases(one([[0.0]]), one([[-0.0]]))


def test_guard_compares_the_classes(make_set):
    train, test = make_set(seed=1), make_set(seed=2)
    swapped = dataclasses.replace(test, classes=test.classes[::-1])
    with pytest.raises(DataError, match="random 1 has the classes a, b and random 2 has b, a; exp"):
        refuse_same_cases(train, swapped)


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".ts", ".ts.gz"])
@pytest.mark.parametrize("layout", ["uea/", ""])
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_the_folder_wins_over_the_package(own_folder, monkeypatch, how, layout, ending):
    folder = own_folder(layout, ending)
    if how == "environment":
        monkeypatch.setenv(ENVIRONMENT, str(folder))
    data_dir = folder if how == "argument" else None
    assert load_set("BasicMotions", data_dir)["train"].series[0][0, 0] == 77.5
    assert len(load_set("JapaneseVowels", data_dir)["test"]) == 370, "the package is still there"


def test_the_argument_wins_over_the_environment(own_folder, tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(own_folder()))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert load_set("BasicMotions", empty)["train"].series[0][0, 0] != 77.5


def test_splits_come_from_one_place(own_folder):
    folder = own_folder(splits=["train"])
    assert list(find_splits("BasicMotions", folder)) == ["train"]
    with pytest.raises(DataError, match="the test split of uea/BasicMotions is not here"):
        load_set("BasicMotions", folder)


def test_a_split_that_is_not_asked_for_is_not_read(ts_file, tmp_path):
    ts_file(content("BasicMotions", "train"), "BasicMotions/BasicMotions_TRAIN.ts")
    ts_file(b"garbage", "BasicMotions/BasicMotions_TEST.ts")
    assert list(load_set("BasicMotions", tmp_path, splits=["train"])) == ["train"]
    with pytest.raises(DataError, match="found 'garbage' before @data"):
        load_set("BasicMotions", tmp_path)


def test_a_missing_split_is_told_with_its_place(tmp_path):
    with pytest.raises(DataError) as error:
        load_set("Heartbeat", tmp_path, splits=["test"])
    assert str(error.value) == (
        f"the test split of uea/Heartbeat is not here; expected {tmp_path}/uea/Heartbeat/"
        "Heartbeat_TEST.ts (or .ts.gz): get Heartbeat.zip from timeseriesclassification.com, "
        "unzip it there"
    )
    with pytest.raises(DataError, match=rf"expected <data folder>/uea/Heartbeat.*{ENVIRONMENT}$"):
        load_set("Heartbeat")


def test_heartbeat_has_a_training_set_here(real_file):
    folder = real_file("Heartbeat", "TRAIN").parents[2]
    assert "train" in find_splits("Heartbeat", folder)


def test_names_that_do_not_exist(tmp_path):
    with pytest.raises(ValueError, match=r"unknown task 'uea/Heartbeet' \(did you mean 'uea/H"):
        load_set("Heartbeet")
    with pytest.raises(
        ValueError, match=r"unknown split of uea/BasicMotions: 'tset' \(did you mean 'test'"
    ):
        load_set("BasicMotions", splits=["train", "tset"])
    with pytest.raises(DataError, match="expected an existing folder"):
        load_set("BasicMotions", tmp_path / "absent")


# -- the embedded files ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "split"), FILES)
def test_embedded_files_are_what_their_readme_says(name, split):
    packed = (FOLDER / name / f"{file_name(name, split)}.gz").read_bytes()
    assert packed[3:8] == bytes(5), "no file name and no time: the same bytes whenever made"
    digest = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{digest}  {file_name(name, split)}\n" in readme
    assert "BSD 3-Clause" in (FOLDER / "LICENSE-aeon").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "split"), FILES)
def test_embedded_files_are_those_of_aeon(name, split):
    aeon = pytest.importorskip("aeon.datasets")
    path = Path(aeon.__file__).parent / "data" / name / file_name(name, split)
    assert content(name, split) == path.read_bytes()
    series, labels = aeon.load_from_ts_file(str(path))
    s = load_set(name, splits=[split])[split]
    assert [s.classes[i].lower() for i in s.labels] == labels.tolist()
    for x, y in zip(s.series, series, strict=True):
        assert x.T.tobytes() == y.tobytes()


@pytest.mark.parametrize("split", ["train", "test"])
def test_embedded_vowels_are_those_of_the_archive(real_file, split):
    archive = read_ts(real_file("JapaneseVowels", split.upper()))
    s = load_set("JapaneseVowels", splits=[split])[split]
    assert archive.classes == s.classes
    assert archive.labels.tolist() == s.labels.tolist()
    assert [x.tobytes() for x in archive.series] == [x.tobytes() for x in s.series]
