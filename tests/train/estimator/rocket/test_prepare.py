"""Series before the bank: missing values, scale, float32."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.tasks.series import Normaliser, SeriesSet
from primal_attention.train.estimator.rocket import prepare
from primal_attention.train.estimator.rocket.prepare import (
    FARTHEST,
    fill_missing,
    fit_normaliser,
    prepare_case,
)

NAN = np.nan


@pytest.mark.parametrize(
    ("values", "filled"),
    [
        ([1.0, NAN, NAN, 4.0], [1.0, 2.0, 3.0, 4.0]),
        ([NAN, 2.0, NAN, 4.0, NAN], [2.0, 2.0, 3.0, 4.0, 4.0]),
        ([NAN, NAN], [0.0, 0.0]),
    ],
)
def test_missing_values_lie_between_their_neighbours(values, filled):
    values = np.array(values)
    fill_missing(values)
    assert values.tolist() == filled


def cases(*series):
    return SeriesSet("X", list(series), np.full(len(series), -1), ())


def test_a_case_is_scaled_before_it_is_rounded(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 5)) * [1, 2, 3, 4, 5] + 1e9  # too large for float32
    normaliser = Normaliser.fit(cases(x))
    expected = ((x - x.mean(0)) / x.std(0)).T
    np.testing.assert_allclose(prepare_case(x, normaliser).numpy(), expected, atol=1e-6)
    monkeypatch.setattr(prepare, "BLOCK", 100)  # two channels at a time
    np.testing.assert_allclose(prepare_case(x, normaliser).numpy(), expected, atol=1e-6)


def test_values_far_away_are_cut():
    normaliser = Normaliser(np.zeros(1), np.ones(1))
    found = prepare_case(np.array([[1e300], [-1e300], [2.0]]), normaliser)
    assert found.tolist() == [[FARTHEST, -FARTHEST, 2.0]]


def test_very_large_sets_are_thinned_for_statistics(monkeypatch):
    rng = np.random.default_rng(0)
    s = cases(*(rng.standard_normal((500, 2)) for _ in range(4)))
    exact = fit_normaliser(s)
    monkeypatch.setattr(prepare, "STATISTICS", 1000)
    thin = fit_normaliser(s)
    np.testing.assert_allclose(thin.mean, exact.mean, atol=0.1)
    np.testing.assert_allclose(thin.deviation, exact.deviation, atol=0.1)
    assert not np.array_equal(thin.mean, exact.mean)
