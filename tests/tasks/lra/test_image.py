"""CIFAR-10 as grey sequences."""

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.lra.image import grey

RNG = np.random.default_rng(0)
CASES = 6  # of a batch


@pytest.fixture
def batches(data, write):
    content = {}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        images = RNG.integers(0, 256, (CASES, 32, 32, 3), dtype=np.uint8)
        labels = RNG.integers(0, 10, CASES).astype(np.uint8)
        records = np.hstack([labels[:, None], images.transpose(0, 3, 1, 2).reshape(CASES, -1)])
        write(data / "cifar10" / f"{name}.bin", records.astype(np.uint8).tobytes())
        content[name] = images, labels
    return content


def test_sequences_and_split(batches, data, task, unpack):
    sets = task("image").load(data)
    assert [len(s) for s in sets.values()] == [27, 3, 6]
    images = np.concatenate([batches[f"data_batch_{i}"][0] for i in range(1, 6)])
    labels = np.concatenate([batches[f"data_batch_{i}"][1] for i in range(1, 6)])
    for split, s, cut in (("train", slice(27), 0), ("validation", slice(27, None), 27)):
        found = sets[split]
        assert found.labels.tolist() == labels[s].tolist()
        for i, (row,) in enumerate(unpack(found)):
            assert row == grey(images[cut + i][None])[0].tolist()
    assert sets["test"].labels.tolist() == batches["test_batch"][1].tolist()
    assert sets["train"].tokens.dtype == np.uint8
    assert set(sets["train"].lengths.ravel().tolist()) == {1024}


def test_grey():
    pixels = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    colours = [(255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (10, 200, 30)]
    pixels[0, 0, :5] = colours
    expected = [int((0.2989 * r + 0.587 * g + 0.114 * b) / 255 * 255.5) for r, g, b in colours]
    assert grey(pixels)[0, :6].tolist() == [*expected, 0]
    assert expected[0] == 255


def test_truncated_and_missing(batches, data, task):
    path = data / "cifar10" / "data_batch_5.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_5\.bin has 18437 bytes; expected records"):
        task("image").load(data, splits=["train"])
    path.unlink()
    status = task("image").status(data)
    assert set(status.places) == {"test"}
    assert status.missing == ("train", "validation")
    with pytest.raises(DataError, match=r"the validation split of lra/image is not here"):
        task("image").load(data, splits=["validation"])
    assert len(task("image").load(data, splits=["test"])["test"]) == CASES
