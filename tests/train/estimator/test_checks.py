"""The official checks of scikit-learn and aeon."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from primal_attention.train.estimator import (
    PrimalBagClassifier,
    PrimalFormerClassifier,
    PrimalFormerRegressor,
    PrimalRocketClassifier,
    PrimalRocketRegressor,
    PrimalTableClassifier,
    PrimalTableRegressor,
    Reranker,
    SparseKernelClassifier,
    SparseKernelRegressor,
)

SMALL = {
    "width": 8, "heads": 1, "feedforward": 8, "layers": 1, "lr": 0.03, "batch_size": 32,
    "steps": 20, "epochs": 1, "groups": 2, "random_state": 0,
}  # fmt: skip
QUICK = [
    PrimalFormerClassifier(ensemble="net", **SMALL),
    PrimalFormerRegressor(ensemble="fast", **SMALL),
    *(kind(groups=4, random_state=0) for kind in (PrimalRocketClassifier, PrimalRocketRegressor)),
]
TINY = {"width": 8, "heads": 1, "feedforward": 8, "random_state": 0}
TABLE = TINY | {"layers": 1, "frequencies": 2, "lr": 0.02, "steps": 60, "epochs": 0}
FEW = {"n_preimages": 4, "steps": 60, "restarts": 1, "random_state": 0}
SETS = [
    PrimalTableClassifier(**TABLE),
    PrimalTableRegressor(**TABLE, context="additive"),
    PrimalBagClassifier(**TINY, lr=0.02, steps=30, epochs=1),
    SparseKernelClassifier(**FEW),
    SparseKernelRegressor(**FEW),
    Reranker(**TINY, steps=5, anchors=4, list_size=8),
]
WHOLE = [kind(ensemble="best", **SMALL) for kind in (PrimalFormerClassifier, PrimalFormerRegressor)]


@parametrize_with_checks(QUICK)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(SETS)
def test_tables_bags_and_lists(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", SETS, ids=lambda one: type(one).__name__)
def test_tables_bags_and_lists_quickly(estimator):
    """Clone, pickle, a grid, and the same again from the same seed."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) % 2
    quick = clone(estimator).set_params(steps=2)
    first, second = (clone(quick).fit(X, y) for _ in range(2))

    def answers(fitted):
        return fitted.rank(X, X, 5) if isinstance(fitted, Reranker) else fitted.predict(X)

    np.testing.assert_array_equal(answers(first), answers(second))
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(answers(again), answers(first))
    if not isinstance(estimator, Reranker):
        grid = GridSearchCV(quick, {"lr": [0.01, 0.02]}, cv=2).fit(X, y)
        assert grid.best_params_["lr"] in (0.01, 0.02)


@pytest.mark.slow
@parametrize_with_checks(WHOLE)
def test_whole_ensembles(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["AeonPrimalFormerClassifier", "AeonPrimalRocketClassifier"])
def test_aeon(name):
    pytest.importorskip("aeon")
    from aeon.testing.estimator_checking import check_estimator

    from primal_attention.train.estimator import aeon

    results = check_estimator(getattr(aeon, name), raise_exceptions=True)
    assert len(results) > 20
    assert {k: v for k, v in results.items() if v != "PASSED"} == {}
