"""The recipe of the net."""

import pytest

from primal_attention.tasks.net import net_settings
from primal_attention.train.config import RunConfig


@pytest.mark.parametrize(("cases", "epochs"), [(2, 400), (40, 200), (150, 50), (6599, 6)])
def test_at_least_so_many_steps_and_epochs(cases, epochs):
    found = net_settings(cases)
    assert found["epochs"] == epochs
    RunConfig(task="uea/BasicMotions", **found).validate()
