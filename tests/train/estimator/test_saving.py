"""A classifier in a folder: the same afterwards, and clear words about a wrong folder."""

import copy
import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention.models.build import build_model
from primal_attention.train import RunError
from primal_attention.train.config import RunConfig
from primal_attention.train.estimator import PrimalFormerClassifier, PrimalFormerRegressor
from primal_attention.train.estimator.folder import write_folder

SMALL = {
    "ensemble": "net", "width": 8, "heads": 2, "feedforward": 8, "rank": 4, "steps": 2,
    "epochs": 1, "networks": 1, "folds": 0, "groups": 2, "random_state": 0,
}  # fmt: skip
RNG = np.random.default_rng(0)
X = [RNG.standard_normal((2, n)) for n in (5, 8, 7, 3, 6, 4)]
Y = np.array(["a", "b"] * 3)


@pytest.fixture(scope="module")
def classifier():
    return PrimalFormerClassifier(**SMALL, attention=("softmax", "primal")).fit(X, Y)


@pytest.fixture
def folder(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_loaded_it_is_the_same_to_the_last_bit(classifier, folder):
    again = PrimalFormerClassifier.load(folder)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.get_params() == classifier.get_params()
    assert again.history_ == classifier.history_
    assert (again.n_iter_, again.n_features_in_) == (2, 2)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "weights.safetensors"]
    assert [p.name for p in folder.parent.iterdir()] == ["saved"]


def test_loaded_it_can_be_fitted_saved_and_loaded_again(folder):
    again = PrimalFormerClassifier.load(folder).set_params(normalise="none").fit(X, Y)
    again.save(folder)  # in the place of the first
    once_more = PrimalFormerClassifier.load(str(folder))
    np.testing.assert_array_equal(once_more.predict_proba(X), again.predict_proba(X))
    assert once_more.normaliser_ is None
    assert [p.name for p in folder.parent.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    "changes", [{"attention": "softmax"}, {"width": 16}, {"rank": 2, "layers": 3}, {"rank": -1}]
)
def test_what_was_fitted_is_saved_whatever_was_set_since(classifier, changes, tmp_path):
    changed = copy.deepcopy(classifier).set_params(**changes)
    changed.save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.get_params() == changed.get_params()
    again.save(tmp_path / "again")
    once_more = PrimalFormerClassifier.load(tmp_path / "again")
    np.testing.assert_array_equal(once_more.predict_proba(X), classifier.predict_proba(X))


@pytest.mark.parametrize("kind", [PrimalFormerClassifier, PrimalFormerRegressor])
@pytest.mark.parametrize("ensemble", ["fast", pytest.param("net", marks=pytest.mark.slow), "best"])
def test_whole_ensembles(kind, ensemble, tmp_path):
    series, y = X * 2, np.arange(12) % 2
    scale = {"normalise": "asinh"} if ensemble == "best" else {}
    first = kind(**SMALL | {"ensemble": ensemble, "folds": 3} | scale).fit(series, y)
    first.save(tmp_path / "saved")
    again = kind.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(series), first.predict(series))
    np.testing.assert_array_equal(again.transform(series), first.transform(series))
    assert again.mixture_ == first.mixture_
    name = "left_out_" if kind is PrimalFormerRegressor else "left_out_proba_"
    np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    other = {PrimalFormerClassifier, PrimalFormerRegressor} - {kind}
    with pytest.raises(RunError, match="is no saved"):
        other.pop().load(tmp_path / "saved")


@pytest.mark.parametrize("has_run", [True, False])
def test_a_folder_of_an_earlier_version(has_run, tmp_path):
    """One Transformer; the earliest have the parameters alone."""
    shape = {"classes": 2, "channels": 2, "max_length": 8}
    sizes = {"width": 8, "heads": 2, "feedforward": 8, "rank": 4}
    config = RunConfig(task="series", weights="data", attention=("softmax", "primal"), **sizes)
    model = build_model(config, **shape).eval()
    run = {k: v for k, v in config.to_dict().items() if k not in ("model", "keep")}
    content = {
        "format": "primal_attention.PrimalFormerClassifier/1",
        "parameters": {
            **sizes, "attention": ["softmax", "primal"], "weights": "data", "normalise": "none",
            "epochs": 3, "patience": 2, "random_state": 0,
        },
        **({"run": run} if has_run else {}),
        "classes": {"dtype": "<U1", "values": ["a", "b"]},
        "channels": 2, "max_length": 8, "normaliser": None, "table": False, "features": 2,
        "feature_names": None, "history": [{"epoch": 1}],
    }  # fmt: skip
    write_folder(tmp_path / "old", content, model.state_dict())
    again = PrimalFormerClassifier.load(tmp_path / "old")
    inputs = torch.from_numpy(X[1].T[None].astype(np.float32)).double()
    expected = model.double()(inputs).softmax(1).detach().numpy()
    np.testing.assert_allclose(again.predict_proba([X[1]]), expected, rtol=1e-6)
    assert (again.ensemble, again.early_stopping, again.n_iter_) == ("net", True, 1)
    assert again.transform([X[1]]).shape == (1, 8)
    again.save(tmp_path / "new")
    once_more = PrimalFormerClassifier.load(tmp_path / "new")
    np.testing.assert_array_equal(once_more.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_folder_in_which_networks_of_folds_have_a_say(version, tmp_path):
    """Half of it. In version 2 probabilities were mixed, share * nets + (1 - share) * frozen."""
    series, y = X * 2, np.arange(12) % 2
    several = {"ensemble": "best", "networks": 3, "folds": 2}
    first = PrimalFormerClassifier(**SMALL | several).fit(series, y)
    first.save(tmp_path / "saved")
    config = tmp_path / "saved" / "config.json"
    content = json.loads(config.read_text())
    del content["halves"], content["parameters"]["networks"]
    content |= {"format": f"primal_attention.PrimalFormerClassifier/{version}", "temperature": 2.0}
    if version == 2:
        del content["factors"], content["parameters"]["folds"]
        content["share"] = 0.3
    config.write_text(json.dumps(content))
    again, parts = PrimalFormerClassifier.load(tmp_path / "saved"), []
    for chosen in (
        *({"nets": (net,), "frozen": None} for net in again.ensemble_.nets),
        {"nets": ()},
    ):
        one = copy.deepcopy(first)
        changes = {"temperature": 2.0, "share": None, **chosen}
        one.ensemble_ = dataclasses.replace(again.ensemble_, **changes)
        parts.append(one.predict_proba(series))
    a, b = again.ensemble_.factors
    if version == 3:
        parts = [np.log(part) for part in parts]  # outputs, up to a constant for each case
    full, *folds, frozen = parts
    expected = a * (0.5 * full + 0.5 * np.mean(folds, 0)) + b * frozen
    if version == 3:
        expected = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    else:
        assert (a, b) == (0.3, 0.7)
    np.testing.assert_allclose(again.predict_proba(series), expected, rtol=1e-10)
    again.save(tmp_path / "new")
    once_more = PrimalFormerClassifier.load(tmp_path / "new")
    np.testing.assert_array_equal(once_more.predict_proba(series), again.predict_proba(series))


def test_the_names_of_columns_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(RNG.standard_normal((6, 4)), columns=list("wxyz"))
    PrimalFormerClassifier(**SMALL).fit(frame, Y).save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    again.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("zyxw")])


def test_a_generator_is_saved_as_none(tmp_path):
    state = np.random.RandomState(0)
    PrimalFormerClassifier(**SMALL | {"random_state": state}).fit(X, Y).save(tmp_path / "saved")
    assert PrimalFormerClassifier.load(tmp_path / "saved").random_state is None


def test_a_folder_of_somebody_else_is_not_touched(classifier, tmp_path):
    (tmp_path / "precious").write_text("x")
    (tmp_path / "sub").mkdir()
    with pytest.raises(RunError, match="is no saved classifier; expected a new folder"):
        classifier.save(tmp_path)
    with pytest.raises(RunError, match="is no saved classifier; expected a new folder"):
        classifier.save(tmp_path / "precious")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["precious", "sub"]
    classifier.save(tmp_path / "sub")  # empty
    assert (tmp_path / "precious").read_text() == "x"


def test_other_files_beside_a_saved_one_are_not_lost(classifier, folder):
    (folder / "notes.txt").write_text("x")
    with pytest.raises(RunError, match="is no saved classifier; expected a new folder"):
        classifier.save(folder)
    assert (folder / "notes.txt").read_text() == "x"
    assert len(list(folder.iterdir())) == 3


def test_a_failure_leaves_the_one_before(classifier, folder, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("primal_attention.train.estimator.folder.write_json", full)
    with pytest.raises(RunError, match=r"cannot save .*: no space left on device"):
        classifier.save(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["saved"]


def test_classes_that_json_cannot_hold(tmp_path):
    days = np.array(["2020-01-01", "2020-01-02"] * 3, dtype="datetime64[D]").astype(object)
    classifier = PrimalFormerClassifier(**SMALL).fit(X, Y)
    classifier.classes_ = np.unique(days)
    with pytest.raises(RunError, match="the classes are of type date; expected text, numbers"):
        classifier.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unit", ["ns", "D"])
def test_times_are_no_classes_to_save(unit, tmp_path):
    days = np.array(["2020-01-01", "2020-01-02"] * 3, dtype=f"datetime64[{unit}]")
    classifier = PrimalFormerClassifier(**SMALL).fit(X, Y)
    classifier.classes_ = np.unique(days)
    with pytest.raises(RunError, match=rf"the classes are of type datetime64\[{unit}\]; expected"):
        classifier.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def parameters(folder, **changes):
    return json.loads((folder / "config.json").read_text())["parameters"] | changes


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: shutil.rmtree(f), "cannot read .*config.json: no such file"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "is no saved classifier"),
        (lambda f: edit(f, format="other/1"), "is no saved classifier; expected .*config.json"),
        (lambda f: edit(f, classes={"values": []}), "is damaged: no 'dtype'"),
        (lambda f: edit(f, parameters={"attention": "primal", "widht": 3}), "is damaged: .*widht"),
        (lambda f: edit(f, channels=5), "is damaged: "),
        (lambda f: edit(f, temperature=10**400), "is damaged: "),
        (lambda f: edit(f, factors=[float("nan"), 1.0]), "is damaged: found nan"),
        (lambda f: edit(f, features="x"), "is damaged: features is 'x'"),
        (lambda f: edit(f, nets=-1), "is damaged: "),
        (lambda f: edit(f, parameters=parameters(f, device=[])), r"is damaged: device is \[\]"),
        (lambda f: edit(f, parameters=parameters(f, n_jobs="x")), "is damaged: n_jobs is 'x'"),
        (lambda f: edit(f, normaliser={"mean": [1e308] * 2, "deviation": [1.0] * 2}), "too great"),
        (lambda f: edit(f, normaliser={"mean": [0.0], "deviation": [1.0]}), "expected 2 of both"),
        (lambda f: (f / "weights.safetensors").unlink(), "weights.safetensors: no such file"),
        (lambda f: (f / "weights.safetensors").write_bytes(b"12"), "is damaged: "),
        (
            lambda f: (f / "weights.safetensors").write_bytes(
                (f / "weights.safetensors").read_bytes()[:-8]
            ),
            "is damaged: ",
        ),
    ],
)
def test_a_wrong_folder_is_told_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(RunError, match=message) as caught:
        PrimalFormerClassifier.load(folder)
    assert "\n" not in str(caught.value)
