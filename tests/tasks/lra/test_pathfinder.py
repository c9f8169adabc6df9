"""Pathfinder's metadata and pictures."""

import numpy as np
import pytest

from primal_attention.tasks import DataError

LEVEL = "lra/pathfinder32/curv_contour_length_14"
RNG = np.random.default_rng(0)


@pytest.fixture
def pictures(data, write, png):
    """Three folders of ten pictures; pixel 0 of a picture is its number, the label its parity."""
    folder = data / LEVEL
    for batch in range(3):
        lines = []
        for i in range(10):
            number = 10 * batch + i
            pixels = RNG.integers(0, 256, (32, 32), dtype=np.uint8)
            pixels[0, 0] = number
            write(folder / f"imgs/{batch}/sample_{i}.png", png(pixels))
            lines.append(f"imgs/{batch} sample_{i}.png {i} {number % 2} 1.0 14 4 2 0.5 1 1\n")
        write(folder / f"metadata/{batch}.npy", "".join(lines))
    return data


def test_splits_are_a_shuffle_of_all(pictures, task, unpack):
    sets = task("pathfinder").load(pictures)
    assert [len(s) for s in sets.values()] == [24, 3, 3]
    numbers = {split: [row[0] for (row,) in unpack(s)] for split, s in sets.items()}
    assert sorted(n for split in numbers.values() for n in split) == list(range(30))
    for split, s in sets.items():
        assert s.labels.tolist() == [number % 2 for number in numbers[split]]
    assert numbers["train"] != sorted(numbers["train"])
    assert set(sets["train"].lengths.ravel().tolist()) == {1024}


def test_rows_one_after_the_other(pictures, task, unpack):
    Image = pytest.importorskip("PIL.Image")
    (row,) = unpack(task("pathfinder").load(pictures)["test"])[0]
    path = pictures / LEVEL / f"imgs/{row[0] // 10}/sample_{row[0] % 10}.png"
    assert row == np.asarray(Image.open(path)).ravel().tolist()


def test_metadata_as_a_true_array(pictures, task):
    before = task("pathfinder").load(pictures)["train"]
    for path in (pictures / LEVEL / "metadata").iterdir():
        np.save(path, np.array([line.split() for line in path.read_text().splitlines()]))
    after = task("pathfinder").load(pictures)["train"]
    np.testing.assert_array_equal(before.tokens, after.tokens)
    np.testing.assert_array_equal(before.labels, after.labels)


def test_empty_files_are_left_out(pictures, task):
    for i in range(4):
        (pictures / LEVEL / f"imgs/0/sample_{i}.png").write_bytes(b"")
    assert sum(len(s) for s in task("pathfinder").load(pictures).values()) == 26


def test_broken_png(pictures, task):
    for path in (pictures / LEVEL / "imgs").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(
        DataError, match=r"sample_\d.png is not a whole PNG file; expected one of 32"
    ):
        task("pathfinder").load(pictures)


def test_other_size(pictures, task, png):
    for path in (pictures / LEVEL / "imgs").rglob("*.png"):
        path.write_bytes(png(np.zeros((64, 16))))
    with pytest.raises(DataError, match=r"\.png has 16 x 64 pixels; expected 32 x 32"):
        task("pathfinder").load(pictures)


def test_missing_picture(pictures, task):
    for path in (pictures / LEVEL / "imgs").rglob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match=r"sample_\d.png cannot be read: No such file"):
        task("pathfinder").load(pictures)


@pytest.mark.parametrize("line", ["imgs/0 sample_0.png 0", "imgs/0 sample_0.png 0 2 1.0", "", "\0"])
def test_bad_metadata(pictures, task, write, line):
    good = "imgs/0 sample_0.png 0 1 1.0\n"
    write(pictures / LEVEL / "metadata/0.npy", good + line + "\n" + good)
    with pytest.raises(DataError, match=r"0\.npy, line 2: found .*expected folder, file, number"):
        task("pathfinder").load(pictures)


def test_metadata_with_objects_is_refused(pictures, task):
    np.save(pictures / LEVEL / "metadata/0.npy", np.array([["a", 1, None]], dtype=object))
    with pytest.raises(DataError, match=r"0\.npy is not an array of text"):
        task("pathfinder").load(pictures)
