"""PrimalRocketRegressor: the same bank for a number."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

import primal_attention as pa
from primal_attention.train.estimator import PrimalRocketRegressor


def tones(cases=80, seed=0):
    """Series and the frequency that they have, on a scale of its own."""
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.3, 1.5, cases)
    time = np.arange(40) * frequency[:, None, None] + rng.uniform(0, 6, (cases, 1, 1))
    return np.sin(time) + 0.1 * rng.standard_normal((cases, 1, 40)), 1000 + 50 * frequency


@pytest.fixture(scope="module")
def fitted():
    return PrimalRocketRegressor(groups=8, random_state=0).fit(*tones())


def test_tones_are_learned(fitted):
    assert fitted.score(*tones(seed=1)) > 0.95


def test_left_out_values_are_in_units_of_y(fitted):
    _, y = tones()
    assert np.corrcoef(fitted.left_out_, y)[0, 1] > 0.97
    assert np.abs(fitted.left_out_ - y).mean() < 5


def test_saved_and_loaded_it_is_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    again = PrimalRocketRegressor.load(tmp_path / "saved")
    X, _ = tones(seed=1)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.left_out_, fitted.left_out_)


def test_a_constant_target_is_predicted():
    X, _ = tones(6)
    found = PrimalRocketRegressor(groups=2, random_state=0).fit(X, np.full(6, 7.0)).predict(X)
    np.testing.assert_allclose(found, 7.0)


@pytest.mark.parametrize(
    ("y", "message"),
    [(None, "requires y"), ([1.0, np.nan, 2.0], "y contains NaN"), ([1.0, 2.0], "inconsistent")],
)
def test_wrong_targets(y, message):
    with pytest.raises(ValueError, match=message):
        PrimalRocketRegressor(groups=2).fit(tones(3)[0], y)


def test_it_is_a_public_name():
    assert pa.PrimalRocketRegressor is PrimalRocketRegressor
