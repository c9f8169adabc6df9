"""Arrays of files: those that are whole, and those whose headers promise what is not there."""

import io
import re
import zipfile

import numpy as np
import pytest

from primal_attention.runs.arrays import read_array, read_arrays

ROWS = np.arange(12.0).reshape(3, 4)
SHAPE = rb"'shape': \([^)]*\)"


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def boasting(data, shape):
    """The same file with another shape in its header, whose spaces at the end make room for it."""
    found = re.search(SHAPE, data)
    header = data[: found.start()] + f"'shape': {shape}".encode() + data[found.end() : 128]
    return header.rstrip().ljust(127) + b"\n" + data[128:]


def pack(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_whole_archives(save, tmp_path):
    save(tmp_path / "a.npz", X=ROWS, names=np.array(["a", "bc"]), none=np.zeros((0, 3)))
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == ["X", "names", "none"]
    np.testing.assert_array_equal(found["X"], ROWS)
    assert found["names"].tolist() == ["a", "bc"]
    assert found["none"].shape == (0, 3)


def test_whole_arrays(tmp_path):
    for array in (ROWS, np.asfortranarray(ROWS), np.array(3)):
        np.save(tmp_path / "a.npy", array)
        np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("shape", ["(10000000000000, 4)", "(4, 4)", "(-1, 4)"])
def test_promises_are_compared_with_the_file(shape, tmp_path):
    (tmp_path / "a.npy").write_bytes(boasting(saved(ROWS), shape))
    with pytest.raises(ValueError, match=r"the array promises .*, 96 bytes are there"):
        read_array(tmp_path / "a.npy")
    path = pack(tmp_path / "a.npz", {"X.npy": boasting(saved(ROWS), shape)})
    with pytest.raises(ValueError, match=r"X.npy promises .*, 96 bytes are there"):
        read_arrays(path)


def test_a_member_that_cannot_be_as_long_as_it_says(tmp_path):
    path = pack(tmp_path / "a.npz", {"X.npy": saved(ROWS)}, zipfile.ZIP_DEFLATED)
    size, huge = (n.to_bytes(4, "little") for n in (len(saved(ROWS)), 2**31))
    path.write_bytes(path.read_bytes().replace(size, huge))
    with pytest.raises(ValueError, match=r"X.npy promises 2,147,483,648 bytes in"):
        read_arrays(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"text", saved(np.array([{}], dtype=object)), saved(ROWS)[:90]],
    ids=["empty", "zip", "text", "objects", "cut"],
)
def test_what_is_no_array_is_a_value_error(content, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):
        read_array(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"\w"):
        read_arrays(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"\w"):
        read_arrays(pack(tmp_path / "a.npz", {"X.npy": content}))


def test_missing_files_are_told_by_the_system(tmp_path):
    for read in (read_array, read_arrays):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "a.npz")
