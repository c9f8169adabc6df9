"""Stores: built once, mapped, whole or not there."""

import os

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.folders import CACHE, cache_folder
from primal_attention.tasks.lra import store
from primal_attention.tasks.lra.store import Encoded, Source, open_set
from primal_attention.tasks.stores import heard_by

TEXTS = [b"one", b"two two", b"three", b"4", b"five five"]


class Words:
    """A source of texts that counts what is asked of it, and fails when told."""

    def __init__(self, path, texts=TEXTS, fail_at=None):
        self.path, self.texts, self.fail_at = path, texts, fail_at
        self.encoded = []

    def encode(self, texts, first):
        if self.fail_at is not None and first >= self.fail_at:
            raise KeyboardInterrupt
        self.encoded.append(first)
        lengths = np.array([[len(t)] for t in texts], dtype=np.int64)
        labels = np.arange(first, first + len(texts)) % 2
        return Encoded(np.frombuffer(b"".join(texts), dtype=np.uint8), lengths, labels)

    def source(self, settings=""):
        return Source("lra/words train", [self.path], lambda: self.texts, self.encode, settings)


@pytest.fixture
def path(write, data):
    return write(data / "words.txt", "content")


def read(words, **more):
    return open_set(words.source(**more), ("even", "odd"), 256)


def texts_of(s):
    places = zip(s.starts[:, 0], s.lengths[:, 0], strict=True)
    return [s.tokens[a : a + n].tobytes() for a, n in places]


def test_built_once_and_mapped(path, cache):
    words = Words(path)
    first = read(words)
    assert texts_of(first) == TEXTS
    assert first.labels.tolist() == [0, 1, 0, 1, 0]
    again = Words(path, texts=None)  # would fail if it were read
    second = read(again)
    assert texts_of(second) == TEXTS
    assert isinstance(second.tokens, np.memmap)
    assert not second.tokens.flags.writeable
    assert second.checksum == first.checksum
    files = sorted(p.name for p in cache.rglob("*") if p.is_file())
    assert files == ["labels.npy", "lengths.npy", "lock", "store.json", "tokens.npy"]


def test_another_file_is_another_store(path):
    first = read(Words(path))
    os.utime(path, ns=(1, 1))
    words = Words(path, texts=TEXTS[:2])
    assert texts_of(read(words)) == TEXTS[:2]
    assert texts_of(read(Words(path, texts=TEXTS[:3]), settings="other")) == TEXTS[:3]
    assert read(words).checksum != first.checksum


def test_parts_make_the_same_store(path, tmp_path):
    for size in (1, 2, 5, 9):
        store.build(Words(path).source(), tmp_path / str(size), part=size)
    stores = [
        [(tmp_path / str(n) / f"{a}.npy").read_bytes() for a in store.Encoded._fields]
        for n in (1, 2, 5, 9)
    ]
    assert all(s == stores[0] for s in stores)
    np.testing.assert_array_equal(np.load(tmp_path / "2" / "labels.npy"), [0, 1, 0, 1, 0])


def test_a_killed_build_goes_on(path, monkeypatch):
    monkeypatch.setitem(store.build.__kwdefaults__, "part", 2)
    killed = Words(path, fail_at=4)
    with pytest.raises(KeyboardInterrupt):
        read(killed)
    assert killed.encoded == [0, 2]
    words = Words(path)
    assert texts_of(read(words)) == TEXTS
    assert words.encoded == [4]


def test_who_listens_is_told(path, tmp_path):
    seen = []
    with heard_by(seen.append):
        store.build(Words(path).source(), tmp_path / "s", part=2)
        store.build(Words(path, iter(TEXTS)).source(), tmp_path / "t", part=4)
    store.build(Words(path).source(), tmp_path / "u")
    told = [(0, None), (2, 5), (4, 5), (5, 5), (0, None), (4, None), (5, None)]
    assert seen == [("lra/words train", *counts) for counts in told]


@pytest.mark.parametrize("name", ["tokens", "lengths", "labels"])
def test_damage_is_found(path, cache, name):
    read(Words(path))
    (found,) = cache.rglob(f"{name}.npy")
    content = bytearray(found.read_bytes())
    content[-1] ^= 1
    found.write_bytes(content)
    with pytest.raises(DataError, match=rf"damaged \(the checksum of {name}.npy .* remove it"):
        read(Words(path))
    found.unlink()
    with pytest.raises(DataError, match=r"damaged .*No such file"):
        read(Words(path))


def test_no_cases(path):
    with pytest.raises(DataError, match=r"lra/words train has no cases in .*words\.txt"):
        read(Words(path, texts=[]))


def test_folder_that_cannot_be_made(path, monkeypatch, write, tmp_path):
    monkeypatch.setenv(CACHE, str(write(tmp_path / "file", "") / "below"))
    with pytest.raises(DataError, match=r"written .*name another folder in PRIMAL_ATTENTION_CACHE"):
        read(Words(path))


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "primal-attention"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "primal-attention"
