"""Normalised scores, and environments that cannot be made or do not fit."""

import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.rl import extra
from primal_attention.tasks.rl.environments import check_fits, get_environment


@pytest.mark.parametrize(
    ("name", "total", "score"),
    [
        ("hopper", -20.272305, 0.0),
        ("hopper", 3234.3, 100.0),
        ("halfcheetah", 12135.0, 100.0),
        ("walker2d", (1.629008 + 4592.3) / 2, 50.0),
    ],
)
def test_scores(name, total, score):
    assert get_environment(name).score(total) == pytest.approx(score)


def test_an_unknown_environment():
    with pytest.raises(ValueError, match="did you mean 'hopper'"):
        get_environment("hoper")


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"state_dim": 3}, "small has states of 3 numbers; expected 4 as in InvertedPendulum-v5"),
        ({"state_dim": 4}, "small has actions of 2 numbers; expected 1 as in InvertedPendulum-v5"),
    ],
)
def test_data_of_another_environment(make_trajectories, widths, message):
    pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    pendulum = get_environment("invertedpendulum")
    check_fits(pendulum, make_trajectories(state_dim=4, action_dim=1))
    with pytest.raises(DataError, match=message):
        check_fits(pendulum, make_trajectories(**widths))


def test_an_import_that_fails_in_its_own_way(monkeypatch):
    """As that of mujoco does when the library of its renderer is missing."""

    def broken(name):
        raise AttributeError("no glGetError")

    monkeypatch.setattr(extra, "import_module", broken)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    message = r"need mujoco, and its import fails with MUJOCO_GL=osmesa \(AttributeError: no gl"
    with pytest.raises(ImportError, match=message):
        extra.need("mujoco", "environments")
