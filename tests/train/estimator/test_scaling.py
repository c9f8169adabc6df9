"""Gaps are closed, heavy tails are drawn in where left-out cases are the better for it."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.train.estimator import PrimalFormerClassifier
from primal_attention.train.estimator.ensemble import unlabelled
from primal_attention.train.estimator.scaling import Squash, closed, heavy_tailed


def test_gaps():
    x = np.array([[np.nan, np.nan], [1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
    found = closed(x)
    assert found[:, 0].tolist() == [1.0, 1.0, 2.0, 3.0]
    assert np.isnan(found[:, 1]).all()
    assert np.isnan(x[0, 0])  # a copy


def test_heavy_tails_are_found():
    rng = np.random.default_rng(0)
    light = [rng.standard_normal((50, 2)) for _ in range(20)]
    assert not heavy_tailed(unlabelled(light))
    light[3][7, 1] = 1e200
    assert heavy_tailed(unlabelled(light))
    assert not heavy_tailed(unlabelled([np.full((5, 2), np.nan), np.ones((5, 2))]))


def test_squash():
    rng = np.random.default_rng(0)
    series = [np.c_[rng.standard_cauchy(200) * 5 + 2, np.full(200, 3.0)] for _ in range(5)]
    squash = Squash.fit(unlabelled(series))
    found = np.concatenate(squash(series))
    assert np.abs(found[:, 0]).max() < 12
    assert np.abs(np.median(found[:, 0])) < 0.1
    assert (found[:, 1] == 0).all()
    again = Squash.from_dict(squash.to_dict())
    np.testing.assert_array_equal(again(series)[0], squash(series)[0])


def test_heavy_tailed_channels_are_drawn_in_by_validation():
    """Two frequencies, hidden by a few enormous values."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = np.sin(np.arange(60) * np.where(y == 0, 0.3, 0.6)[:, None, None] + rng.random((40, 1, 1)))
    X += 0.2 * rng.standard_normal(X.shape)
    X *= np.where(rng.random(X.shape) < 0.02, 1e4, 1.0)

    def loss(**scale):
        former = PrimalFormerClassifier(ensemble="fast", groups=4, random_state=0, **scale)
        found = former.fit(X, y).left_out_proba_
        return former, -np.log(found[np.arange(40), y]).mean()

    chosen, least = loss()
    assert chosen.ensemble_.squash is not None
    assert least < loss(normalise="channel")[1]
