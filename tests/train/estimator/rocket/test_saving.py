"""The classifier in a folder: the same afterwards, and clear words about a wrong folder."""

import copy
import json

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.train import RunError
from primal_attention.train.estimator import (
    PrimalFormerClassifier,
    PrimalRocketClassifier,
    PrimalRocketRegressor,
)

RNG = np.random.default_rng(0)
X = [RNG.standard_normal((2, n)) for n in (25, 18, 17, 13, 26, 14)]
Y = np.array(["a", "b"] * 3)


@pytest.fixture(scope="module")
def classifier():
    return PrimalRocketClassifier(groups=2, random_state=0).fit(X, Y)


@pytest.fixture
def folder(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_loaded_it_is_the_same_to_the_last_bit(classifier, folder):
    again = PrimalRocketClassifier.load(folder)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    np.testing.assert_array_equal(again.left_out_proba_, classifier.left_out_proba_)
    assert again.get_params() == classifier.get_params()
    assert again.alphas_ == classifier.alphas_
    assert again.weights_ == classifier.weights_
    assert again.n_features_in_ == 2
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "weights.safetensors"]


def test_loaded_it_can_be_fitted_saved_and_loaded_again(folder):
    again = PrimalRocketClassifier.load(folder).set_params(parts="tied").fit(X, Y)
    again.save(folder)  # in the place of the first
    once_more = PrimalRocketClassifier.load(str(folder))
    np.testing.assert_array_equal(once_more.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("changes", [{"parts": ["raw"]}, {"groups": 7, "max_positions": 3}])
def test_what_was_fitted_is_saved_whatever_was_set_since(classifier, changes, tmp_path):
    changed = copy.deepcopy(classifier).set_params(**changes)
    changed.save(tmp_path / "saved")
    again = PrimalRocketClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_the_names_of_columns_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(RNG.standard_normal((6, 4)), columns=list("wxyz"))
    PrimalRocketClassifier(groups=2).fit(frame, Y).save(tmp_path / "saved")
    again = PrimalRocketClassifier.load(tmp_path / "saved")
    again.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("zyxw")])


def test_a_generator_is_saved_as_none(tmp_path):
    state = np.random.RandomState(0)
    PrimalRocketClassifier(groups=2, random_state=state).fit(X, Y).save(tmp_path / "saved")
    assert PrimalRocketClassifier.load(tmp_path / "saved").random_state is None


def test_other_kinds_are_not_mixed_up(classifier, folder):
    for kind in (PrimalFormerClassifier, PrimalRocketRegressor):
        with pytest.raises(RunError, match="is no saved"):
            kind.load(folder)
    regressor = PrimalRocketRegressor(groups=2).fit(X, range(6))
    with pytest.raises(RunError, match="is no saved regressor; expected a new folder"):
        regressor.save(folder)


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: edit(f, format="other/1"), "is no saved classifier; expected .*config.json"),
        (lambda f: edit(f, classes={"values": []}), "is damaged: no 'dtype'"),
        (lambda f: edit(f, parameters={"parts": "tied", "grops": 3}), "is damaged: .*grops"),
        (lambda f: edit(f, channels=5), "is damaged: "),
        (lambda f: edit(f, max_positions=10**30), "is damaged: "),
        (lambda f: edit(f, max_positions="x"), "is damaged: max_positions is 'x'"),
        (lambda f: edit(f, points=5), "is damaged: weights for .* features; expected"),
        (lambda f: edit(f, alphas={"bass": 1.0}), "is damaged: no 'bass.weights'"),
        (lambda f: (f / "weights.safetensors").unlink(), "weights.safetensors: no such file"),
        (lambda f: (f / "weights.safetensors").write_bytes(b"12"), "is damaged: "),
    ],
)
def test_a_wrong_folder_is_told_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(RunError, match=message) as caught:
        PrimalRocketClassifier.load(folder)
    assert "\n" not in str(caught.value)
