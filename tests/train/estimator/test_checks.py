"""The official checks of scikit-learn and aeon."""

import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

from primal_attention.train.estimator import (
    PrimalFormerClassifier,
    PrimalFormerRegressor,
    PrimalRocketClassifier,
    PrimalRocketRegressor,
)

SMALL = {
    "width": 8, "heads": 1, "feedforward": 8, "layers": 1, "lr": 0.03, "batch_size": 32,
    "steps": 20, "epochs": 1, "groups": 2, "random_state": 0,
}  # fmt: skip
QUICK = [
    PrimalFormerClassifier(ensemble="net", folds=0, **SMALL),
    PrimalFormerRegressor(ensemble="fast", **SMALL),
    *(kind(groups=4, random_state=0) for kind in (PrimalRocketClassifier, PrimalRocketRegressor)),
]
WHOLE = [
    kind(ensemble=ensemble, **SMALL)
    for kind in (PrimalFormerClassifier, PrimalFormerRegressor)
    for ensemble in ("fast", "net", "best")
]


@parametrize_with_checks(QUICK)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(WHOLE)
def test_whole_ensembles(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", ["Former", "Rocket"])
@pytest.mark.parametrize("answer", ["Classifier", "Regressor"])
def test_aeon(kind, answer):
    pytest.importorskip("aeon")
    from aeon.testing.estimator_checking import check_estimator

    from primal_attention.train.estimator import aeon

    results = check_estimator(getattr(aeon, f"AeonPrimal{kind}{answer}"), raise_exceptions=True)
    assert len(results) > 20
    assert {k: v for k, v in results.items() if v != "PASSED"} == {}
