"""The official checks of scikit-learn and aeon."""

from functools import partial

import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import estimator_checks_generator

from primal_attention.train.estimator import (
    PrimalFormerClassifier,
    PrimalFormerRegressor,
    PrimalRocketClassifier,
    PrimalRocketRegressor,
)

SMALL = {
    "width": 8, "heads": 1, "feedforward": 8, "layers": 1, "lr": 0.06, "batch_size": 32,
    "steps": 10, "epochs": 1, "groups": 2, "random_state": 0,
}  # fmt: skip
QUICK = [
    PrimalFormerClassifier(ensemble="net", **SMALL),
    PrimalFormerRegressor(ensemble="fast", **SMALL),
    PrimalRocketClassifier(groups=4, random_state=0),
]
# the frozen bank, which `fast` above is too, and the ensembles as a whole
SLOW = [
    PrimalRocketRegressor(groups=4, random_state=0),
    *(kind(ensemble="best", **SMALL) for kind in (PrimalFormerClassifier, PrimalFormerRegressor)),
]
# What comes in is read by the same functions in all of them: see PrimalRocketClassifier, whose fit
# takes no time.
READING = {
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_f_contiguous_array_estimator",
    "check_fit_score_takes_y",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_supervised_y_2d",
    "check_transformer_data_not_an_array",
}


def checks():
    for estimator in (*QUICK, *SLOW):
        name = type(estimator).__name__ + "-" + getattr(estimator, "ensemble", "rocket")
        for _, check in estimator_checks_generator(estimator):
            plain, words = check, {}
            while isinstance(plain, partial):
                plain, words = plain.func, plain.keywords | words
            slow = estimator in SLOW or "readonly_memmap" in words
            slow |= name == "PrimalFormerClassifier-net" and plain.__name__ in READING
            title = "-".join([name, plain.__name__, *(f"{k}={v}" for k, v in words.items())])
            marks = pytest.mark.slow if slow else ()
            yield pytest.param(estimator, check, marks=marks, id=title)


@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["AeonPrimalFormerClassifier", "AeonPrimalRocketClassifier"])
def test_aeon(name):
    pytest.importorskip("aeon")
    from aeon.testing.estimator_checking import check_estimator

    from primal_attention.train.estimator import aeon

    results = check_estimator(getattr(aeon, name), raise_exceptions=True)
    assert len(results) > 20
    assert {k: v for k, v in results.items() if v != "PASSED"} == {}
