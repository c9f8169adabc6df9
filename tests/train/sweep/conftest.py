"""A store, and settings of runs that take a fraction of a second."""

import pytest

from primal_attention.train.sweep import Outcome, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def outcome():
    """Makes outcomes: `outcome("a", status="failed")`."""

    def make(fingerprint, status="finished", **fields):
        return Outcome(fingerprint, status, fields.pop("settings", {}), **fields)

    return make
