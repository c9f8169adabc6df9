"""A missing extra is one sentence that names it."""

import sys

import pytest

from primal_attention.runs.errors import RunError
from primal_attention.runs.extras import MissingExtra, is_installed, needs_extra


@pytest.mark.parametrize(
    ("module", "called"), [("PIL", "Pillow"), ("sklearn", "scikit-learn"), ("optuna", "optuna")]
)
def test_the_sentence(module, called, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as missing, needs_extra("some", "pictures need"):
        __import__(f"{module}.inner")
    assert str(missing.value) == f"pictures need {called}; install 'primal-attention[some]'"
    assert missing.value.name == module
    assert isinstance(missing.value, RunError)


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), needs_extra("some", "pictures need"):
        raise ZeroDivisionError


def test_what_is_installed():
    assert is_installed("json")
    assert not is_installed("no_such_module")
