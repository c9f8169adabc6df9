"""PrimalRocketClassifier: what it learns, what it takes, what it refuses."""

import copy
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import primal_attention as pa
from primal_attention.train.estimator import PrimalRocketClassifier
from primal_attention.train.estimator.rocket import features, model
from primal_attention.train.estimator.rocket.pooling import PARTS

from .. import series
from ..series import archive, cut


def small(**changes):
    return PrimalRocketClassifier(**({"groups": 4, "random_state": 0} | changes))


waves = partial(series.waves, length=30, phases=6, noise=0.3)


def ragged(cases=24, seed=0):
    X, y = waves(cases, seed=seed)
    return cut(X, least=8, seed=seed), y


@pytest.fixture(scope="module")
def fitted():
    return small().fit(*ragged())


# -- what it learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [waves, ragged])
def test_waves_are_learned(make):
    classifier = small().fit(*make())
    assert classifier.score(*make(seed=1)) == 1.0


@pytest.mark.parametrize("part", tuple(PARTS)[:-1])
def test_waves_are_learned_from_each_part(part):
    classifier = small(parts=part, groups=8).fit(*waves(60))
    assert classifier.score(*waves(60, seed=1)) > 0.9
    assert list(classifier.weights_) == list(classifier.alphas_) == [part]


def test_when_something_happens_is_learned_from_times():
    """The same event, early or late."""
    rng = np.random.default_rng(0)
    X, y = 0.1 * rng.standard_normal((40, 1, 60)), np.arange(40) % 2
    for x, late in zip(X, y, strict=True):
        start = 35 * late + rng.integers(5, 15)
        x[0, start : start + 8] += np.hanning(8)
    assert (
        small(parts=("winner_cosines", "positive_cosines"))
        .fit(X[:20], y[:20])
        .score(X[20:], y[20:])
        > 0.9
    )


def test_a_raw_series_is_learned_from_its_values():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 1, 10)), np.arange(60) % 2
    X[:, 0, 3] += 3 * y
    assert small(parts="raw").fit(X[:40], y[:40]).score(X[40:], y[40:]) > 0.8


def test_noise_is_not_believed():
    """Nothing can be learned from noise, though the ridge fits it: the left-out cases tell."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 1, 30)), np.arange(60) % 2
    classifier = small().fit(X, y)
    assert classifier.left_out_proba_.shape == (60, 2)
    assert classifier.left_out_proba_.max(1).mean() < 0.65
    other = classifier.predict_proba(rng.standard_normal((60, 1, 30)))
    assert other.max(1).mean() < 0.65
    np.testing.assert_allclose(classifier.left_out_proba_.sum(1), 1.0)


def test_probabilities_are_calibrated():
    X, y = waves(300, length=20)
    rng = np.random.default_rng(0)
    flipped = np.where(rng.random(300) < 0.2, 1 - y, y)
    found = small().fit(X[:200], flipped[:200]).predict_proba(X[200:])
    assert 0.6 < found.max(1).mean() < 0.95


def test_more_cases_than_landmarks():
    X, y = waves(120)
    exact, spanned = small().fit(X, y), small(landmarks=30).fit(X, y)
    X_test, y_test = waves(60, seed=1)
    assert spanned.score(X_test, y_test) > 0.95
    assert (exact.predict(X_test) == spanned.predict(X_test)).mean() > 0.95
    # in the order of X, not in that of the landmarks
    assert (spanned.left_out_proba_.argmax(1) == y).mean() > 0.95


@pytest.mark.parametrize("name", ["BasicMotions", "JapaneseVowels"])
def test_the_defaults_are_good_on_real_sets(name):
    train, test = archive(name)
    assert PrimalRocketClassifier(random_state=0).fit(*train).score(*test) > 0.95


# -- features --------------------------------------------------------------------------------------


def test_features_are_of_use_to_others():
    X, y = waves()
    classifier = small().fit(X, y)
    found = classifier.transform(X)
    assert found.dtype == np.float32
    assert found.shape == (24, sum(len(r.weights) for r in classifier.model_.ridges.values()))
    ridge = make_pipeline(StandardScaler(), RidgeClassifier(10.0)).fit(found, y)
    X_test, y_test = waves(seed=1)
    assert ridge.score(classifier.transform(X_test), y_test) == 1.0


def test_chunks_do_not_matter(monkeypatch):
    X, y = ragged()
    whole = small().fit(X, y)
    found, probabilities = whole.transform(X), whole.predict_proba(X)
    monkeypatch.setattr(features, "CHUNK", 100)  # one case, one group at a time
    monkeypatch.setattr(model, "FEATURES", 1)
    np.testing.assert_allclose(whole.transform(X), found, atol=1e-5)
    np.testing.assert_allclose(whole.predict_proba(X), probabilities, atol=1e-5)
    np.testing.assert_allclose(small().fit(X, y).predict_proba(X), probabilities, atol=1e-3)


def test_long_series_are_thinned():
    X, y = waves(12, channels=1, length=1000)
    thin = small(max_positions=100).fit(X, y)
    assert thin.score(*waves(12, channels=1, length=1000, seed=1)) == 1.0


# -- inputs ----------------------------------------------------------------------------------------


def test_the_same_series_in_every_form_give_the_same():
    X, y = waves(channels=1)
    reference = small().fit(X, y)
    for form in (list(X), tuple(X), X[:, 0], X[:, 0].tolist()):
        other = small().fit(form, y)
        np.testing.assert_array_equal(other.predict_proba(form), reference.predict_proba(X))
    np.testing.assert_array_equal(reference.predict(X[:, 0]), reference.predict(X))
    assert reference.n_features_in_ == 1


def test_a_case_is_predicted_alike_in_any_company(fitted):
    X, _ = ragged(30, seed=3)
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba([x]) for x in X])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(X[::-1])[::-1], together, atol=1e-6)


def test_lengths_of_one_and_longer_than_in_fit(fitted):
    found = fitted.predict_proba([np.ones((2, 1)), np.ones((2, 500))])
    assert np.isfinite(found).all()


def test_missing_values_are_filled():
    X, y = waves()
    gaps = X.copy()
    gaps[::3, 1, 3:6] = np.nan
    gaps[1, 0] = np.nan  # a whole channel
    classifier = small().fit(gaps, y)
    assert np.isfinite(classifier.predict_proba(gaps)).all()
    between = X.copy()
    between[::3, 1, 3:6] = np.linspace(X[::3, 1, 2], X[::3, 1, 6], 5)[1:-1].T
    between[1, 0] = classifier.model_.extractor.normaliser.mean[0]
    np.testing.assert_allclose(
        classifier.predict_proba(gaps), classifier.predict_proba(between), atol=1e-6
    )


@pytest.mark.parametrize("y", [[0, 1], [0, 1, 2], list("aab")])
def test_tiny_sets(y):
    X, _ = waves(len(y))
    found = small().fit(X, y).predict_proba(X)
    assert found.shape == (len(y), len(set(y)))
    assert np.isfinite(found).all()


def test_constant_series():
    classifier = small().fit(np.ones((6, 2, 10)), [0, 1] * 3)
    np.testing.assert_allclose(classifier.predict_proba(np.ones((1, 2, 10))), 0.5, atol=1e-6)


def test_many_channels():
    X, y = waves(12, channels=1000, length=20)
    classifier = small(groups=8).fit(X, y)
    assert classifier.model_.extractor.points == 16
    assert classifier.score(X, y) == 1.0


@pytest.mark.slow
def test_a_long_case_takes_the_memory_that_is_stated():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 20, 100_000))
    X[::2] += np.sin(np.arange(100_000) / 50)
    y = np.arange(4) % 2
    tracemalloc.start()  # numpy's memory; torch's is bounded by the chunks
    classifier = small().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes + 160e6 + 4 * X[0].nbytes  # float64, statistics, the case at hand
    assert np.isfinite(classifier.predict_proba(X)).all()


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1, 1, 1, 1], "y has 1 class, .*1.*; expected at least 2 classes"),
        ([0, 1], "inconsistent numbers of samples"),
    ],
)
def test_wrong_labels(y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(waves(4)[0], y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": "row"}, "parts is 'row'; expected different ones of max_counts, .*, tied, raw"),
        ({"parts": ()}, r"parts is \(\); expected"),
        ({"parts": ("raw", "raw")}, "expected different ones"),
        ({"groups": 0}, "groups is 0; expected an integer of at least 1"),
        ({"max_positions": 2.5}, "max_positions is 2.5"),
        ({"landmarks": 1}, "landmarks is 1; expected an integer of at least 2"),
        ({"n_jobs": 0}, "n_jobs is 0; expected an integer of at least 1"),
        ({"random_state": -1}, "random_state is -1"),
    ],
)
def test_wrong_parameters_are_told_in_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes).fit(*waves(4))


def test_other_channels_are_refused(fitted):
    with pytest.raises(ValueError, match="X has 3 channels; expected 2 as in fit"):
        fitted.predict(waves(4, channels=3)[0])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "save"])
def test_not_fitted(method, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(tmp_path)


# -- scikit-learn's ways ---------------------------------------------------------------------------


def test_it_is_a_public_name():
    assert pa.PrimalRocketClassifier is PrimalRocketClassifier
    assert "PrimalRocketClassifier" in dir(pa)


def test_parameters_are_kept_as_given_and_cloned():
    parts = ["tied", "raw"]
    classifier = small(parts=parts)
    assert classifier.parts is parts
    assert clone(classifier).set_params(groups=2).get_params()["groups"] == 2
    assert not hasattr(clone(classifier.fit(*waves(6))), "model_")


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


def test_global_generators_and_threads_are_left_alone():
    X, y = waves(8)
    torch.manual_seed(3)
    np.random.seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    threads = torch.get_num_threads()
    small(n_jobs=2).fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, None), (2, 2), (np.int64(1), 1)])
def test_threads_while_it_computes(n_jobs, expected, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "primal_attention.train.estimator.rocket.estimator.fit_model",
        lambda *rest: (seen.append(torch.get_num_threads()), model.fit_model(*rest))[1],
    )
    small(n_jobs=n_jobs).fit(*waves(4))
    assert seen == [torch.get_num_threads() if expected is None else expected]


def test_in_a_grid_search_over_series_of_unequal_length():
    grid = {"groups": np.array([2, 4]), "parts": ["excess", ("tied", "raw")]}
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(*ragged())
    assert len(search.cv_results_["params"]) == 4
