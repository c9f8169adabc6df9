"""Small sets, files in the archive's format, and the folder with the real ones if there is one."""

import os
from pathlib import Path

import numpy as np
import pytest

from primal_attention.tasks import SeriesSet
from primal_attention.tasks.folders import ENVIRONMENT

_given = os.environ.get(ENVIRONMENT)
REAL_DATA = Path(_given) if _given else Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def no_folder_in_the_environment(monkeypatch):
    """A test sees the data that it names, whatever the machine has."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)


@pytest.fixture
def real_file():
    """The path of a real file of the archive; the test is skipped where there is none."""

    def find(name, split):
        path = REAL_DATA / "uea" / name / f"{name}_{split}.ts.gz"
        if not path.is_file():
            pytest.skip(f"{path} is not here")
        return path

    return find


def random_set(cases=7, channels=3, classes=2, *, seed=0, longest=6, missing=0.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, cases)
    series = [rng.normal(size=(n, channels)) for n in lengths]
    for s in series:
        s[rng.random(s.shape) < missing] = np.nan
    labels = np.arange(cases) % classes
    return SeriesSet(f"random {seed}", series, labels, tuple("abcdefgh"[:classes]))


@pytest.fixture(scope="session")
def make_set():
    return random_set


def ts_text(s, header=""):
    """A set in the archive's format, every value written so that it can be read back exactly."""

    def value(x):
        return "?" if np.isnan(x) else repr(float(x))

    lines = [header, f"@classLabel true {' '.join(s.classes)}", "@data"]
    for x, label in zip(s.series, s.labels, strict=True):
        dimensions = [",".join(map(value, row)) for row in x.T]
        lines.append(":".join([*dimensions, s.classes[label]]))
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="session")
def as_ts():
    return ts_text


@pytest.fixture
def ts_file(tmp_path):
    """Write a file in the archive's format; it appears under the name that is given."""

    def write(content, name="Some_TRAIN.ts"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
