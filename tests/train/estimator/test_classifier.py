"""PrimalFormerClassifier: what it learns, what it takes, what it refuses."""

import copy
import importlib
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from primal_attention import attention_info, available_attentions
from primal_attention.tasks.series import stratified_split
from primal_attention.tasks.settings import OPTIONS_OF_THE_MODEL
from primal_attention.train.estimator import PrimalFormerClassifier
from primal_attention.train.estimator.settings import Settings

from .series import archive, cut, waves

SMALL = {
    "ensemble": "net", "width": 16, "heads": 2, "feedforward": 16, "rank": 4, "steps": 6,
    "epochs": 1, "networks": 1, "folds": 0, "groups": 2, "random_state": 0,
}  # fmt: skip


def small(**changes):
    return PrimalFormerClassifier(**(SMALL | changes))


def ragged(cases=24, seed=0):
    X, y = waves(cases, seed=seed)
    return cut(X, least=5, seed=seed), y


@pytest.fixture(scope="module")
def fitted():
    return small().fit(*ragged())


# -- what it learns --------------------------------------------------------------------------------


def test_waves_are_learned():
    classifier = small(steps=40, lr=0.01).fit(*waves())
    assert classifier.score(*waves(seed=1)) == 1.0


@pytest.mark.parametrize("attention", ["softmax", ("softmax", "primal")])
def test_other_attentions_are_learned(attention):
    classifier = small(steps=40, lr=0.01, attention=attention).fit(*waves(96))
    assert classifier.score(*waves(96, seed=1)) > 0.9


@pytest.mark.parametrize(
    "options", [{"performer.features": np.int64(8)}, {"performer": {"features": 8}}]
)
def test_options_of_attentions(options, tmp_path):
    X, y = waves(8)
    classifier = clone(small(attention="performer", options=options)).fit(X, y)
    assert {layer.attention.features for layer in classifier.model_.encoder.layers} == {8}
    assert classifier.options == options
    classifier.save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    assert again.get_params() == classifier.get_params()
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


@pytest.mark.parametrize("name", available_attentions())
def test_every_option_of_every_attention_is_reachable(name):
    """With its own default, from the parameters to the layer."""
    own = {"weights", "rank", "rank_multi", "anchor_rule"} if name == "primal" else set()
    known = attention_info(name).options
    given = {
        f"{name}.{option}": parameter.default
        for option, parameter in known.items()
        if option not in OPTIONS_OF_THE_MODEL | own | {"max_length"}
    }
    config = Settings.of(small(attention=name, options=given).get_params()).config
    found = config.attention_options().get(name, {})
    reached = {*found, "max_length", *OPTIONS_OF_THE_MODEL}
    assert set(known) <= reached


@pytest.mark.slow  # in short: waves above, frequencies in test_building.py
def test_a_part_of_japanese_vowels_is_learned():
    (X, y), (X_test, y_test) = archive("JapaneseVowels")
    speakers = ["1", "2", "3"]
    mine, tested = np.isin(y, speakers), np.isin(y_test, speakers)
    classifier = PrimalFormerClassifier(
        ensemble="net", networks=1, folds=0, steps=60, random_state=0
    )
    classifier.fit([X[i] for i in np.flatnonzero(mine)], y[mine])
    assert classifier.score([X_test[i] for i in np.flatnonzero(tested)], y_test[tested]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("JapaneseVowels", 0.98), ("BasicMotions", 0.99)])
def test_the_defaults_are_good_on_real_sets(name, least):
    train, test = archive(name)
    assert PrimalFormerClassifier(random_state=0).fit(*train).score(*test) > least


# -- early stopping --------------------------------------------------------------------------------


def test_it_stops_early_with_the_best_weights():
    X, _ = waves(16)
    y = np.random.default_rng(0).permutation(16) % 2  # nothing to learn
    settings = {"early_stopping": True, "patience": 2, "lr": 0.01, "validation_fraction": 0.25}
    classifier = small(epochs=40, **settings).fit(X, y)
    history = classifier.history_
    best = max(history, key=lambda e: (e["accuracy"], -e["loss"]))
    assert {e["split"] for e in history} == {"validation"}
    assert classifier.n_iter_ == len(history) == best["epoch"] + 2 < 40  # a pass is one step
    assert best["accuracy"] == accuracy_of_held_out(classifier, X, y, 0.25)


def accuracy_of_held_out(classifier, X, y, fraction):
    seed = int(np.random.SeedSequence(0).generate_state(1)[0])
    held_out = stratified_split(y, fraction, seed)[1]
    return classifier.score(X[held_out], y[held_out])


@pytest.mark.parametrize(
    ("changes", "y"), [({}, [0, 1, 0, 1, 0]), ({"early_stopping": True}, list("abcde"))]
)
def test_without_validation_all_steps_are_trained_on_all_cases(changes, y):
    X, _ = waves(5)
    classifier = small(steps=3, patience=1, **changes).fit(X, y)
    assert classifier.n_iter_ == 3
    assert {e["split"] for e in classifier.history_} == {"train"}
    # the history's last accuracy is that of the weights that were kept
    assert classifier.history_[-1]["accuracy"] == classifier.score(X, y)


def test_at_least_so_many_passes():
    X, y = waves(20)
    assert small(steps=3, epochs=4, batch_size=8).fit(X, y).n_iter_ == 4 * 3


def test_a_class_with_a_single_case_is_always_trained_on():
    X, y = waves(9)
    y[0] = 2
    assert small().fit(X, y).classes_.tolist() == [0, 1, 2]


# -- inputs ----------------------------------------------------------------------------------------


def test_the_same_series_in_every_form_give_the_same():
    X, y = waves(channels=1)
    reference = small().fit(X, y)
    for form in (list(X), tuple(X), X[:, 0], X[:, 0].tolist()):
        other = small().fit(form, y)
        np.testing.assert_array_equal(other.predict_proba(form), reference.predict_proba(X))
    # and a table may follow a collection, or the other way round
    np.testing.assert_array_equal(reference.predict(X[:, 0]), reference.predict(X))
    table = small().fit(X[:, 0], y)
    np.testing.assert_array_equal(table.predict(X), table.predict(X[:, 0]))
    assert (reference.n_features_in_, table.n_features_in_) == (1, 12)


def test_a_case_is_predicted_alike_in_any_company(fitted):
    X, _ = ragged(30, seed=3)
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba([x]) for x in X])
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X[::-1])[::-1], together, rtol=1e-12)
    np.testing.assert_allclose(together.sum(1), 1.0)


def test_nested_lists_are_arrays(fitted):
    X, _ = ragged(6)
    found = fitted.predict_proba([x.tolist() for x in X])
    np.testing.assert_array_equal(found, fitted.predict_proba(X))


def test_longer_series_are_cut(fitted):
    X, _ = waves(6, length=20)
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.predict_proba(X[:, :, :12]))


def test_missing_values_lie_on_the_line_between_their_neighbours():
    X, y = waves()
    gaps, filled = X.copy(), X.copy()
    gaps[:, 1, 3:6] = np.nan
    filled[:, 1, 3:6] = np.linspace(X[:, 1, 2], X[:, 1, 6], 5)[1:-1].T
    for kind in ("net", "fast"):
        classifier = small(ensemble=kind).fit(gaps, y)
        found = [classifier.predict_proba(x) for x in (gaps, filled)]
        np.testing.assert_allclose(*found, rtol=1e-4)
    empty = X.copy()
    empty[:, 1] = np.nan  # a channel without any value
    assert np.isfinite(
        small(ensemble="best", folds=2, steps=2).fit(empty, y).predict_proba(empty)
    ).all()


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([3, 7], dtype=object),
        np.array([0.5, 1.5], dtype=object),
        np.array([-1, 1]),
        np.array([3, 250], dtype=np.uint8),
        np.array([1.0, 2.0]),
        np.array([False, True]),
    ],
    ids=lambda c: str(c.dtype),
)
def test_labels_of_any_type(classes, tmp_path):
    X, y = waves()
    classifier = small().fit(X, classes[y])
    found = classifier.predict(X)
    assert classifier.classes_.dtype == found.dtype == classes.dtype
    assert set(found.tolist()) <= set(classes.tolist())
    classifier.save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    assert again.classes_.dtype == classes.dtype
    assert again.predict(X).tolist() == found.tolist()
    assert [type(c) for c in again.classes_] == [type(c) for c in classifier.classes_]


# -- refusals --------------------------------------------------------------------------------------


def spoiled(place, value):
    X, _ = waves(4)
    X[place] = value
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (spoiled((2, 0, 0), np.inf), "case 2 of X has an infinite value"),
        (spoiled((2, 0, 0), 1e300), "infinite value; expected values within"),
        ([np.zeros((2, 3)), np.zeros((1, 3))] * 2, "case 1 of X has 1 channels; expected 2"),
        ([np.zeros((2, 3)), np.zeros((2, 0))] * 2, r"case 1 of X has shape \(2, 0\)"),
        ([np.zeros((2, 3)), np.zeros(3)] * 2, r"case 1 of X has shape \(3,\)"),
        (np.zeros((4, 2, 3), dtype=complex), "complex128; expected real numbers"),
        (np.full((4, 2, 3), "x"), "expected real numbers"),
        (np.full((4, 2, 3), "x", dtype=object), "case 0 of X has a value that is no number"),
        (np.zeros((0, 2, 3)), "X has 0 cases"),
        (np.zeros((4, 2, 3, 1)), "dim 4"),
        (
            [np.zeros(n) for n in (3, 3, 5, 3)],
            r"case 2 of X has shape \(5,\) and case 0 \(3,\); .*\(channels, timepoints\)",
        ),
        ([[[1, 2], [3]]] * 4, r"case 0 of X has channels of unequal length; .*\(channels, time"),
    ],
)
def test_wrong_series(X, message):
    with pytest.raises(ValueError, match=message):
        small(normalise="none").fit(X, [0, 1, 0, 1])


def test_nested_frames_are_refused():
    pandas = pytest.importorskip("pandas")
    X, y = waves(4)
    cells = {f"channel {c}": [pandas.Series(x[c]) for x in X] for c in range(2)}
    message = r"case 0 of X has a series of shape \(12,\) in column 0; .*\(channels, timepoints\)"
    with pytest.raises(ValueError, match=message):
        small().fit(pandas.DataFrame(cells), y)


def test_no_cases_are_refused(fitted):
    with pytest.raises(ValueError, match="X has 0 cases; expected at least one"):
        fitted.predict([])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1, 1, 1, 1], "y has 1 class, .*1.*; expected at least 2 classes"),
        ([0, 1], "inconsistent numbers of samples"),
        ([0.0, 1.5, 0.25, 1.0], r"y has the number 1.5; expected classes: whole numbers"),
        ([0.0, np.nan, 0.0, 1.0], "label 1 of y is nan; expected a class"),
        (np.array([0, 1, None, 1], dtype=object), "label 2 of y is None; expected a class"),
        (np.array([0, np.nan, 0, 1], dtype=object), "label 1 of y is nan; expected a class"),
        (np.array(["a", 1, "a", 1], dtype=object), "y has labels that cannot be sorted"),
    ],
)
def test_wrong_labels(y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(waves(4)[0], y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "primol"}, "did you mean 'primal'"),
        ({"attention": ()}, "expected one name per layer"),
        ({"attention": 3}, "attention is 3"),
        ({"layers": 0}, "layers is 0; expected an integer of at least 1"),
        ({"weights": "date"}, "weights is 'date' .did you mean 'data'"),
        ({"width": 15}, "heads is 2; expected a divisor of the width, 15"),
        ({"lr": -1}, "lr is -1; expected a positive number"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": 2.5}, "epochs is 2.5"),
        ({"patience": 0}, "patience is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"ensemble": "bst"}, "ensemble is 'bst' .did you mean 'best'"),
        ({"normalise": "asin"}, "normalise is 'asin' .did you mean 'asinh'"),
        ({"max_minutes": 0}, "max_minutes is 0; expected a positive number or None"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"groups": 0}, "groups is 0"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"early_stopping": "yes"}, "early_stopping is 'yes'; expected True or False"),
        ({"verbose": -1}, "verbose is -1"),
        ({"verbose": "loud"}, "verbose is 'loud'"),
        ({"device": "gpu"}, "device is 'gpu'"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": "x"}, "random_state is 'x'"),
        ({"rank": 0}, "rank is 0"),
        ({"anchor_rule": "means"}, "anchor_rule is 'means' .did you mean 'mean'"),
        ({"options": {"features": 8}}, "options has 'features': 8; expected such as"),
        ({"options": {"performer.features": 8}}, "a key of options is 'performer'"),
        ({"options": {"primal.feature_maps": "exp"}}, "did you mean 'feature_map'"),
        ({"options": {"primal": {"feature_map": "sine"}}}, "unknown feature map 'sine'"),
    ],
)
def test_wrong_parameters_are_told_in_fit(changes, message):
    classifier = small(**changes)
    with pytest.raises(ValueError, match=message):
        classifier.fit(*waves(4))


def test_other_channels_are_refused(fitted):
    with pytest.raises(ValueError, match="X has 3 channels; expected 2 as in fit"):
        fitted.predict(waves(4, channels=3)[0])
    with pytest.raises(ValueError, match="X has 1 channels; expected 2 as in fit"):
        fitted.predict(waves(4)[0][:, 0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the device that should be missing")
def test_a_device_that_is_not_there():
    X, y = waves(4)
    with pytest.raises(ValueError, match=r"'cuda' .*cannot be used"):
        small(device="cuda").fit(X, y)
    with pytest.raises(ValueError, match="device 'cuda' cannot be used here"):
        small().fit(X, y).set_params(device="cuda").predict(X)


def test_a_fit_that_fails_leaves_the_fitted_as_it_was():
    X, y = waves(6)
    classifier = small(normalise="none").fit(X, y)
    before = classifier.predict(X)
    with pytest.raises(ValueError, match="infinite"):
        classifier.fit(X * 1e300, np.array(list("ababab")))
    np.testing.assert_array_equal(classifier.predict(X), before)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "save"])
def test_not_fitted(method, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(tmp_path)


# -- scikit-learn's ways ---------------------------------------------------------------------------


def test_parameters_are_kept_as_given_and_cloned():
    attention, state = ["softmax", "primal"], np.random.RandomState(0)
    classifier = small(attention=attention, random_state=state)
    assert classifier.attention is attention
    assert classifier.random_state is state
    copied = clone(small(attention=attention)).set_params(width=32)
    assert (copied.attention, copied.width) == (attention, 32)
    assert not hasattr(clone(small().fit(*waves(6))), "model_")


def test_pickled_and_copied_it_predicts_the_same(fitted):
    X, _ = ragged(8, seed=1)
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))


def test_a_random_state_gives_the_same_every_time():
    X, y = waves()
    first, second, other = (small(random_state=s).fit(X, y) for s in (7, np.int64(7), 8))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))
    drawn = [small(random_state=np.random.RandomState(5)).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(*(c.predict_proba(X) for c in drawn))
    fresh = [small(random_state=None).fit(X, y).predict_proba(X) for _ in range(2)]
    assert not np.array_equal(*fresh)


@pytest.mark.parametrize("random_state", [0, None])
def test_global_generators_are_left_alone(random_state):
    X, y = waves(8)
    torch.manual_seed(3)
    np.random.seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    small(random_state=random_state).fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


def test_fits_in_threads_do_not_disturb_each_other():
    X, y = waves(8)
    with ThreadPoolExecutor(3) as pool:
        found = list(
            pool.map(lambda s: small(random_state=s).fit(X, y).predict_proba(X), [0, 1] * 2)
        )
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], small(random_state=1).fit(X, y).predict_proba(X))


def test_in_a_pipeline():
    X, y = waves(channels=1)
    table = make_pipeline(StandardScaler(), small(steps=40, lr=0.01)).fit(X[:, 0], y)
    assert table.score(waves(channels=1, seed=1)[0][:, 0], y) > 0.9
    halved = make_pipeline(FunctionTransformer(lambda X: X[:, :, ::2]), small()).fit(*waves())
    assert halved[-1].model_.max_length == 6


def test_in_a_grid_search_over_series_of_unequal_length():
    grid = {"width": np.array([8, 16]), "attention": ["primal", ("softmax", "primal")]}
    search = GridSearchCV(small(steps=2), grid, cv=2, error_score="raise").fit(*ragged())
    assert search.best_estimator_.classes_.tolist() == [0, 1]
    assert len(search.cv_results_["params"]) == 4


def test_progress_is_shown_only_if_asked(capsys):
    small().fit(*waves(6))
    assert capsys.readouterr() == ("", "")
    small(verbose=1).fit(*waves(6))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("networks 1/1 [##############################] 100 %\n")


@pytest.mark.parametrize("module", ["sklearn.base", "lightning_fabric", "safetensors"])
def test_a_missing_extra_is_named(module, monkeypatch):
    for name in ("estimator", "estimator.classifier"):
        monkeypatch.delitem(sys.modules, f"primal_attention.train.{name}")
    monkeypatch.setitem(sys.modules, module, None)
    called = "scikit-learn" if module == "sklearn.base" else module
    message = f"^PrimalFormerClassifier needs {called}; install 'primal-attention.train.'$"
    with pytest.raises(ImportError, match=message):
        importlib.import_module("primal_attention.train.estimator")
