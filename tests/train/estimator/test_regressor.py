"""PrimalFormerRegressor: it learns numbers, with networks and with the bank."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.train.estimator import PrimalFormerRegressor

SMALL = {"width": 16, "heads": 2, "feedforward": 16, "epochs": 1, "groups": 2, "random_state": 0}


def sines(cases=60, seed=0):
    """The value is the frequency."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(0.2, 1.0, cases)
    return np.sin(np.arange(40) * y[:, None, None] + 6 * rng.uniform(size=(cases, 1, 1))), 7 * y


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("fast", 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("net", 50), ("best", 16))),
    ],
)
def test_a_frequency_is_learned(kind, steps):
    regressor = PrimalFormerRegressor(ensemble=kind, steps=steps, lr=0.01, **SMALL)
    regressor.fit(*sines())
    assert regressor.score(*sines(seed=1)) > 0.8
    if kind != "net":  # with so few steps
        assert np.corrcoef(regressor.left_out_, sines()[1])[0, 1] > 0.8


def test_early_stopping():
    regressor = PrimalFormerRegressor(
        ensemble="net", networks=1, folds=0, steps=8, early_stopping=True, patience=1, **SMALL
    )
    regressor.fit(*sines(20))
    assert {entry["split"] for entry in regressor.history_} == {"validation"}


@pytest.mark.parametrize(
    ("y", "message"), [(None, "requires y to be passed"), ([1.0, np.nan, 2.0], "NaN")]
)
def test_wrong_values(y, message):
    with pytest.raises(ValueError, match=message):
        PrimalFormerRegressor().fit(sines(3)[0], y)
