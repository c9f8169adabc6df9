"""Files that are whole or not there."""

import os

import pytest

from primal_attention.runs.files import TEMPORARY, replacing, write_bytes, write_json


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "x.bin"
    write_bytes(path, b"old")
    with replacing(path) as beside:
        beside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
        assert beside.parent == tmp_path
        assert beside.name.startswith(TEMPORARY)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": "é"})

    def stopped():
        with replacing(path) as beside:
            beside.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, float("nan"))
    assert path.read_text() == '{\n  "a": "é"\n}\n'
    assert os.listdir(tmp_path) == ["x.json"]


def test_what_was_not_written_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "x"):
        pass
    assert os.listdir(tmp_path) == []
