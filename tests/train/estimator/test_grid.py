"""Series with times: on a regular grid, the same in every unit, saved and loaded with the rest."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.train.estimator import PrimalFormerClassifier
from primal_attention.train.estimator.grid import TimeGrid, read_times

RNG = np.random.default_rng(0)


def waves(cases=24, points=40, *, dropped=0.5):
    """Slow and quick waves of which half of the points are missing, as arrays (1, length_i)."""
    X, times = [], []
    for i in range(cases):
        kept = np.sort(RNG.permutation(points)[: int(points * (1 - dropped))])
        X.append(np.sin(kept * (0.3 + 0.3 * (i % 2)) + RNG.uniform(0.0, 6.0))[None])
        times.append(kept.astype(float))
    return X, np.arange(cases) % 2, times


def test_points_of_a_line_stay_on_it():
    times = np.array([0.0, 1.0, 3.0, 3.5, 10.0])
    x = np.stack([2 * times + 1, np.full(5, np.nan)], 1)
    x[2, 0] = np.nan  # a missing value lies on the line too
    (found,) = TimeGrid(0.5)([x], [times])
    assert found.shape == (21, 2)
    np.testing.assert_allclose(found[:, 0], 2 * 0.5 * np.arange(21) + 1)
    assert np.isnan(found[:, 1]).all()


def test_a_regular_series_is_left_as_it_is():
    x, times = RNG.standard_normal((30, 2)), 1e9 + 0.1 * np.arange(30)
    grid = TimeGrid.fit([times])
    assert grid.step == pytest.approx(0.1, rel=1e-6)
    np.testing.assert_allclose(grid([x], [times])[0], x, atol=1e-3)  # times are rounded


def test_the_grid_is_never_too_fine():
    times = np.concatenate([np.arange(50) * 1e-6, [1.0]])
    grid = TimeGrid.fit([times])
    assert len(grid([np.zeros((51, 1))], [times])[0]) <= 4 * 51 + 1


def test_a_case_in_another_unit_is_refused_before_it_fills_the_memory():
    with pytest.raises(ValueError, match=r"case 1 of times lasts 1e\+12, 2e\+12 steps of the grid"):
        TimeGrid(0.5)([np.zeros((2, 1))] * 2, [np.array([0.0, 1.0]), np.array([0.0, 1e12])])


def test_a_classifier_with_times(tmp_path):
    X, y, times = waves()
    model = PrimalFormerClassifier(ensemble="fast", groups=2, random_state=0).fit(X, y, times=times)
    days = PrimalFormerClassifier(ensemble="fast", groups=2, random_state=0)
    days.fit(X, y, times=[1e4 + t / 86400 for t in times])
    np.testing.assert_allclose(
        model.predict_proba(X, times), days.predict_proba(X, [1e4 + t / 86400 for t in times]),
        atol=1e-6,
    )  # fmt: skip
    model.save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(X, times=times), model.predict(X, times=times))
    assert model.score(X, y, times=times) > 0.9
    with pytest.raises(ValueError, match="no times were given; expected times, as in fit"):
        model.predict(X)
    with pytest.raises(ValueError, match="times were given; expected no times, as in fit"):
        PrimalFormerClassifier(ensemble="fast", groups=2).fit(X, y).predict(X, times)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([[0, 1]], "times has 1 cases; expected 2, as X"),
        ([[0, 1], [0]], r"case 1 of times has shape \(1,\); expected \(2,\)"),
        ([[0, 1], [1, 1]], "case 1 of times does not increase"),
        ([[0, np.nan], [0, 1]], "case 0 of times does not increase"),
    ],
)
def test_times_that_are_none(times, message):
    with pytest.raises(ValueError, match=message):
        read_times(times, [np.zeros((2, 1)), np.zeros((2, 1))])
