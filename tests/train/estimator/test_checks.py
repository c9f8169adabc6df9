"""The official checks of scikit-learn and aeon."""

import pickle
from functools import partial

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

import primal_attention as pa
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
    "width": 8, "heads": 1, "feedforward": 8, "layers": 1, "lr": 0.06, "batch_size": 32,
    "steps": 10, "epochs": 1, "networks": 1, "groups": 2, "random_state": 0,
}  # fmt: skip
# what comes in is read by the same functions in all of them: one, whose fit takes no time, is quick
QUICK = PrimalRocketClassifier(groups=4, random_state=0)
ONE_NET = PrimalFormerClassifier(ensemble="net", folds=0, **SMALL | {"steps": 15})
TINY = {"width": 8, "heads": 1, "feedforward": 8, "random_state": 0}
TABLE = TINY | {"layers": 1, "frequencies": 2, "lr": 0.02, "steps": 60, "epochs": 0, "networks": 2}
FEW = {"n_preimages": 4, "steps": 60, "restarts": 1, "random_state": 0}
SETS = [
    PrimalTableClassifier(**TABLE),
    PrimalTableRegressor(**TABLE, context="additive"),
    PrimalBagClassifier(**TINY, lr=0.02, steps=30, epochs=1),
    SparseKernelClassifier(**FEW),
    SparseKernelRegressor(**FEW | {"steps": 300}),
    Reranker(**TINY, steps=5, anchors=4, list_size=8),
]
# the frozen bank for values, in its other guise, and the ensembles as a whole
SLOW = [
    ONE_NET,
    PrimalRocketRegressor(groups=4, random_state=0),
    PrimalFormerClassifier(ensemble="fast", **SMALL),
    PrimalFormerRegressor(ensemble="fast", **SMALL),
    *(
        kind(ensemble=ensemble, **SMALL | {"steps": steps})
        for kind in (PrimalFormerClassifier, PrimalFormerRegressor)
        for ensemble, steps in (("net", 60), ("best", 10))  # a network alone must learn more
    ),
    *SETS,
]


def checks():
    for estimator in (QUICK, *SLOW):
        kind = "rocket" if hasattr(estimator, "groups") else "sets"
        name = type(estimator).__name__ + "-" + getattr(estimator, "ensemble", kind)
        for _, check in estimator_checks_generator(estimator):
            plain, words = check, {}
            while isinstance(plain, partial):
                plain, words = plain.func, plain.keywords | words
            slow = estimator in SLOW or "readonly_memmap" in words
            title = "-".join([name, plain.__name__, *(f"{k}={v}" for k, v in words.items())])
            marks = pytest.mark.slow if slow else ()
            yield pytest.param(estimator, check, marks=marks, id=title)


@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [ONE_NET, *SETS], ids=lambda one: type(one).__name__)
def test_all_kinds_quickly(estimator):
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


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("Rocket", "Regressor"),
        *(
            pytest.param(kind, answer, marks=pytest.mark.slow)
            for kind, answer in (
                ("Rocket", "Classifier"), ("Former", "Classifier"), ("Former", "Regressor"),
            )
        ),
    ],
)  # fmt: skip
def test_aeon(kind, answer):
    pytest.importorskip("aeon")
    from aeon.testing.estimator_checking import check_estimator

    results = check_estimator(getattr(pa.aeon, f"Primal{kind}{answer}"), raise_exceptions=True)
    assert len(results) > 20
    assert {k: v for k, v in results.items() if v != "PASSED"} == {}
