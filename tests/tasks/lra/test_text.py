"""IMDB reviews from the folder and from tar files."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.folders import ENVIRONMENT

REVIEWS = {
    "train/neg/10_2.txt": b"bad<br />",
    "train/neg/2_1.txt": "d\u00e9j\u00e0 vu".encode(),
    "train/pos/0_9.txt": b"\xff\x00 strange bytes",
    "test/neg/0_1.txt": b"no",
    "test/pos/0_8.txt": b"yes",
    "test/pos/1_7.txt": b"yes, yes",
}
EXPECTED = [REVIEWS[f"train/{name}.txt"] for name in ("neg/10_2", "neg/2_1", "pos/0_9")]

given = os.environ.get(ENVIRONMENT)
REAL = Path(given) if given else Path(__file__).parents[3].parent / "shared" / "data"


@pytest.fixture
def folder(data, write):
    for name, content in REVIEWS.items():
        write(data / "imdb" / "aclImdb" / name, content)
    write(data / "imdb" / "aclImdb" / "train" / "unsup" / "0_0.txt", "not labelled")
    write(data / "imdb" / "aclImdb" / "train" / "labeledBow.feat", "not a review")
    return data


def archive(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as tar:
        for name, content in reversed(members.items()):  # order must not matter
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_bytes_by_class_and_name(folder, task, unpack):
    sets = task("text").load(folder)
    assert list(sets) == ["train", "test"]
    train = sets["train"]
    assert unpack(train) == [[[b + 1 for b in text]] for text in EXPECTED]
    assert train.labels.tolist() == [0, 0, 1]
    assert train.classes == ("neg", "pos")
    assert train.vocabulary == 257
    assert int(train.tokens.max()) == 256
    assert sets["test"].labels.tolist() == [0, 1, 1]


def test_tar_file_gives_the_same(folder, task, tmp_path):
    other = tmp_path / "other"
    archive(other / "imdb" / "aclImdb_v1.tar.xz", REVIEWS)
    a, b = task("text").load(folder), task("text").load(other)
    for split in ("train", "test"):
        assert a[split].fingerprint() == b[split].fingerprint()
        np.testing.assert_array_equal(a[split].tokens, b[split].tokens)


def test_long_reviews_are_cut_in_batches_only(data, write, task):
    for name in REVIEWS:
        write(data / "aclImdb" / name, b"x" * 5000)
    train = task("text").load(data, splits=["train"])["train"]
    assert set(train.lengths.ravel().tolist()) == {5000}


@pytest.mark.parametrize("missing", ["neg", "pos"])
def test_missing_class(folder, task, missing):
    for path in (folder / "imdb" / "aclImdb" / "train" / missing).iterdir():
        path.unlink()
    with pytest.raises(DataError, match=rf"train/{missing} has no reviews; expected .txt files"):
        task("text").load(folder, splits=["train"])
    (folder / "imdb" / "aclImdb" / "train" / missing).rmdir()
    with pytest.raises(DataError, match=rf"train/{missing} is not here; expected a folder"):
        task("text").load(folder, splits=["train"])


def test_missing_class_in_a_tar_file(data, task):
    members = {name: text for name, text in REVIEWS.items() if "train/pos" not in name}
    archive(data / "imdb" / "aclImdb_v1.tar.xz", members)
    with pytest.raises(DataError, match="has no reviews in aclImdb/train/pos"):
        task("text").load(data, splits=["train"])


def test_broken_tar_file(data, task):
    path = data / "imdb" / "aclImdb_v1.tar.xz"
    archive(path, REVIEWS)
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(DataError, match=r"aclImdb_v1.tar.xz cannot be read as a tar file"):
        task("text").load(data)


def test_empty_review(folder, task, write):
    write(folder / "imdb" / "aclImdb" / "train" / "pos" / "7_7.txt", b"")
    with pytest.raises(DataError, match=r"7_7.txt is empty; expected a review"):
        task("text").load(folder)


def test_a_review_that_changes_is_read_again(folder, task, write):
    before = task("text").load(folder, splits=["train"])["train"]
    write(folder / "imdb" / "aclImdb" / "train" / "pos" / "0_9.txt", b"other")
    after = task("text").load(folder, splits=["train"])["train"]
    assert after.lengths[-1] == 5
    assert after.fingerprint() != before.fingerprint()


def test_bytes_are_kept_as_they_are(folder, task, unpack, write):
    """Marks, ends of lines and equal reviews are content; the files of a file manager are not."""
    reviews = {"3_1": b"\xef\xbb\xbfone\r\ntwo\n", "4_1": b" ", "5_1": b" ", "._5_1": b"\0\5\x16"}
    for name, text in reviews.items():
        write(folder / "imdb" / "aclImdb" / "train" / "neg" / f"{name}.txt", text)
    train = unpack(task("text").load(folder, splits=["train"])["train"])
    texts = [bytes(t - 1 for t in row) for (row,) in train]
    assert texts == [*EXPECTED[:2], *list(reviews.values())[:3], EXPECTED[2]]


def test_what_is_no_review_in_a_tar_file(data, task):
    path = data / "imdb" / "aclImdb_v1.tar.xz"
    archive(path, REVIEWS | {"train/pos/._0_9.txt": b"x", "train/pos/deep/1_9.txt": b"x", "a": b""})
    before = task("text").load(data, splits=["train"])["train"]
    with tarfile.open(path, "w:xz") as tar:
        root = tarfile.TarInfo("./")
        root.type = tarfile.DIRTYPE
        tar.addfile(root)
        for name, content in REVIEWS.items():
            member = tarfile.TarInfo(f"./aclImdb/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("aclImdb/train/pos/9_9.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "nowhere.txt"
        tar.addfile(link)
    after = task("text").load(data, splits=["train"])["train"]
    np.testing.assert_array_equal(before.tokens, after.tokens)
    assert len(after) == 3


@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_tar_file_with_wrong_bytes(data, task, kind):
    path = data / "imdb" / f"aclImdb_v1.tar.{kind}"
    noise = np.random.default_rng(0).bytes(200_000)
    path.parent.mkdir()
    with tarfile.open(path, f"w:{kind}") as tar:
        member = tarfile.TarInfo("aclImdb/train/neg/0_1.txt")
        member.size = len(noise)
        tar.addfile(member, io.BytesIO(noise))
    content = bytearray(path.read_bytes())
    content[100_000:100_200] = bytes(200)
    content[-300:-100] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"aclImdb_v1.tar.{kind} cannot be read as a tar file"):
        task("text").load(data, splits=["train"])


@pytest.mark.slow
def test_real_reviews(task):
    if not list((REAL / "imdb").glob("aclImdb*.tar.xz")):
        pytest.skip("the reviews are not here")
    sets = task("text").load(REAL)
    for s in sets.values():
        assert len(s) == 25_000
        assert s.labels.sum() == 12_500
    first = sets["train"]
    text = bytes((first.tokens[: first.lengths[0, 0]] - 1).astype(np.uint8))
    assert text.startswith(b"Story of a man who has unnatural feelings for a pig.")
