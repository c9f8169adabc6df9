"""Small files in the formats of the benchmark; token stores go to a temporary folder."""

import io

import numpy as np
import pytest

from primal_attention.tasks.folders import CACHE
from primal_attention.tasks.lra import arena_tasks


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE, str(folder))
    return folder


@pytest.fixture
def data(tmp_path):
    """An empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def write():
    def to(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to


@pytest.fixture(scope="session")
def task():
    known = {task.name.removeprefix("lra/"): task for task in arena_tasks()}
    return known.__getitem__


def sequences(s):
    """All sequences of a set as lists, case by case (and side by side for pairs)."""
    return [
        [s.tokens[a : a + n].tolist() for a, n in zip(starts, lengths, strict=True)]
        for starts, lengths in zip(s.starts, s.lengths, strict=True)
    ]


@pytest.fixture(scope="session")
def unpack():
    return sequences


@pytest.fixture(scope="session")
def png():
    Image = pytest.importorskip("PIL.Image")

    def encode(pixels):
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, format="PNG")
        return buffer.getvalue()

    return encode
