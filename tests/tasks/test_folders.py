"""Where data is looked for."""

import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.folders import ENVIRONMENT, data_folder


def test_no_folder():
    assert data_folder() is None


def test_the_argument_wins_over_the_environment(tmp_path, monkeypatch):
    given, other = tmp_path / "given", tmp_path / "other"
    given.mkdir()
    other.mkdir()
    monkeypatch.setenv(ENVIRONMENT, str(other))
    assert data_folder() == other
    assert data_folder(given) == data_folder(str(given)) == given
    monkeypatch.setenv(ENVIRONMENT, "")
    assert data_folder() is None


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    assert data_folder("~/data") == tmp_path / "data"


def test_a_folder_that_does_not_exist(tmp_path, monkeypatch):
    absent = tmp_path / "absent"
    with pytest.raises(DataError, match=r"the data folder is '.*absent'; expected an existing"):
        data_folder(absent)
    monkeypatch.setenv(ENVIRONMENT, str(absent))
    with pytest.raises(DataError, match=rf"the data folder in {ENVIRONMENT} is '.*absent'; exp"):
        data_folder()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="expected an existing folder"):
        data_folder(tmp_path / "file")
