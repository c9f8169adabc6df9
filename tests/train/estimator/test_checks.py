"""The official checks of scikit-learn and aeon."""

import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

from primal_attention.train.estimator import PrimalFormerClassifier

SMALL = PrimalFormerClassifier(
    width=8,
    heads=1,
    feedforward=8,
    rank=2,
    layers=1,
    lr=0.03,
    batch_size=32,
    epochs=6,
    random_state=0,
)


@parametrize_with_checks([SMALL])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_aeon():
    pytest.importorskip("aeon")
    from aeon.testing.estimator_checking import check_estimator

    from primal_attention.train.estimator.aeon import AeonPrimalFormerClassifier

    results = check_estimator(AeonPrimalFormerClassifier, raise_exceptions=True)
    assert len(results) > 20
    assert {k: v for k, v in results.items() if v != "PASSED"} == {}
