"""Tables: the summary is the table, rows come and go, and what is read is what was meant."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention import PrimalTableClassifier, PrimalTableRegressor
from primal_attention.train import RunError

SMALL = {
    "width": 8, "heads": 2, "layers": 2, "feedforward": 8, "frequencies": 2, "steps": 8,
    "epochs": 0, "batch_size": 16, "networks": 2, "random_state": 0,
}  # fmt: skip
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
X[::7, 1] = np.nan
Y = np.nan_to_num(X[:, 1]) * X[:, 0] + 0.1 * RNG.standard_normal(60)
LABELS = np.array(["low", "high"])[(Y > 0).astype(int)]
EXACT = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(scope="module")
def additive():
    return PrimalTableRegressor(context="additive", **SMALL).fit(X[:40], Y[:40])


@pytest.fixture(scope="module")
def sets():
    return PrimalTableClassifier(**SMALL).fit(X[:40], LABELS[:40])


def again(estimator, tmp_path):
    """A copy that can be changed, by way of a folder."""
    estimator.save(tmp_path / "copy")
    return type(estimator).load(tmp_path / "copy")


@pytest.mark.parametrize("name", ["additive", "sets"])
def test_the_summary_answers_as_the_joint_pass_does(name, request):
    estimator = request.getfixturevalue(name)
    context = estimator._rows(X[:40], (Y if name == "additive" else LABELS)[:40])
    asked = estimator._inputs(X[40:])
    with torch.no_grad():
        joint = estimator.net_(*asked, *context.parts)
        by_summary = estimator.net_.answer(*asked, estimator.summary_)
    torch.testing.assert_close(by_summary, joint, rtol=1e-9, atol=1e-9)


def test_a_prediction_does_not_depend_on_who_else_is_asked(sets):
    whole = sets.predict_proba(X[40:])
    np.testing.assert_allclose(sets.predict_proba(X[43:46]), whole[3:6], **EXACT)


def test_the_order_of_the_context_does_not_matter(sets):
    rows = sets._rows(X[:40], LABELS[:40])
    turned = sets._summarise(rows[torch.randperm(40)])
    for kept, other in zip(sets.summary_, turned, strict=True):
        for a, b in zip(kept.tensors, other.tensors, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_absorbing_is_exact_and_forgetting_undoes_it(additive, tmp_path):
    before = additive.predict(X)
    changed = again(additive, tmp_path).absorb(X[40:50], Y[40:50]).absorb(X[50:], Y[50:])
    assert changed.context_rows_ == 60
    assert np.abs(changed.predict(X) - before).max() > 1e-6
    together = again(additive, tmp_path).absorb(X[40:], Y[40:])
    np.testing.assert_allclose(changed.predict(X), together.predict(X), **EXACT)
    np.testing.assert_allclose(changed.forget(X[40:], Y[40:]).predict(X), before, **EXACT)


def test_labels_of_the_context_are_followed(additive, tmp_path):
    """Intervention: the same rows with other labels, absorbed, move the prediction their way."""
    up, down = (
        again(additive, tmp_path).absorb(X[40:], Y[40:] + shift).predict(X[40:])
        for shift in (3.0, -3.0)
    )
    assert up.mean() > down.mean() + 0.5


def test_a_faded_context_counts_for_less(additive, tmp_path):
    shifted = Y[40:] + 3.0
    plain = again(additive, tmp_path).absorb(X[40:], shifted)
    faded = again(additive, tmp_path).absorb(X[40:], shifted, decay=0.1)
    assert faded.context_rows_ == pytest.approx(24.0)
    assert faded.predict(X[40:]).mean() > plain.predict(X[40:]).mean()


def test_a_set_sees_what_was_before_and_refuses_to_forget(sets, tmp_path):
    changed = again(sets, tmp_path).absorb(X[40:], LABELS[40:])
    assert changed.context_rows_ == 60
    with pytest.raises(ValueError, match="cannot forget: rows are mixed with each other"):
        changed.forget(X[40:], LABELS[40:])


def test_with_the_table_a_set_is_encoded_again(tmp_path):
    kept = PrimalTableRegressor(keep_table=True, **SMALL).fit(X[:40], Y[:40])
    before = kept.predict(X)
    kept = again(kept, tmp_path).absorb(X[40:], Y[40:])
    joint = kept._summarise(kept._rows(X, Y))
    for ours, theirs in zip(kept.summary_, joint, strict=True):
        torch.testing.assert_close(ours.tensors, theirs.tensors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kept.forget(X[40:], Y[40:]).predict(X), before, **EXACT)
    with pytest.raises(ValueError, match="1 rows to be forgotten are not in the table"):
        kept.forget(X[50:51], Y[50:51])


def test_the_fitted_model_does_not_grow_with_the_table(additive, sets):
    for estimator in (additive, sets):
        double = estimator._rows(
            np.tile(X, (5, 1)), np.tile(Y if estimator is additive else LABELS, 5)
        )
        sizes = [sum(s.numbers for s in kept) for kept in
                 (estimator.summary_, estimator._summarise(double))]  # fmt: skip
        assert sizes[0] == sizes[1]


def test_frames_with_everything_in_them(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({
        "size": X[:, 0], "kind": np.where(X[:, 2] > 0, "a", "b"),
        "old": X[:, 3] > 0, "at": pd.date_range("2026-01-01", periods=60),
        "level": pd.Categorical(np.where(X[:, 2] > 1, "up", "down")),
    })  # fmt: skip
    frame.loc[3, "kind"] = None
    model = PrimalTableClassifier(**SMALL).fit(frame, LABELS)
    assert model.columns_.numbers == 2
    assert model.columns_.categories == [2, 2, 2]
    assert list(model.feature_names_in_) == list(frame.columns)
    new = frame.assign(kind="c")  # not there before: as if missing
    assert model.predict_proba(new).shape == (60, 2)
    found = again(model, tmp_path)
    np.testing.assert_array_equal(found.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "width"}))
    with pytest.raises(ValueError, match="Input X contains infinity in column size"):
        model.predict(frame.assign(size=np.inf))


def test_numbers_may_be_categories():
    coded = np.column_stack([X[:, 0], RNG.integers(3, size=60)])
    model = PrimalTableRegressor(categorical=[1], **SMALL).fit(coded, Y)
    assert model.columns_.categories == [3]
    assert model.predict(coded).shape == (60,)
    with pytest.raises(ValueError, match="categorical has 'x'; expected names or places"):
        PrimalTableRegressor(categorical=["x"], **SMALL).fit(coded, Y)


def test_what_is_refused(sets, additive, tmp_path):
    with pytest.raises(ValueError, match="y has the class 'middle', which was not there in fit"):
        sets.absorb(X[:1], ["middle"])
    with pytest.raises(ValueError, match="40 rows are to be forgotten of 40; expected fewer"):
        additive.forget(X[:40], Y[:40])
    with pytest.raises(ValueError, match="attention is 'nystrom'"):
        PrimalTableClassifier(attention="nystrom", **SMALL).fit(X, LABELS)
    with pytest.raises(ValueError, match="context is 'both'"):
        PrimalTableClassifier(context="both", **SMALL).fit(X, LABELS)
    sets.save(tmp_path / "saved")
    with pytest.raises(RunError, match="is no saved regressor"):
        PrimalTableRegressor.load(tmp_path / "saved")


def test_several_networks_answer_by_their_mean(additive, sets):
    numbers, codes = additive._inputs(X)
    with torch.no_grad():
        each = [
            net.answer(numbers, codes, additive.summary_[3 * k : 3 * k + 3])
            for k, net in enumerate(additive.net_.members)
        ]
    assert (each[0] - each[1]).abs().max() > 1e-3
    mean = torch.stack(each).mean(0)[:, 0].numpy()
    expected = additive._centre + additive._deviation * mean
    np.testing.assert_allclose(additive.predict(X), expected, **EXACT)
    with torch.no_grad():
        chances = [
            net.answer(*sets._inputs(X), sets.summary_[3 * k : 3 * k + 3]).softmax(1)
            for k, net in enumerate(sets.net_.members)
        ]
    np.testing.assert_allclose(sets.predict_proba(X), torch.stack(chances).mean(0), **EXACT)
    with pytest.raises(ValueError, match="networks is 0; expected an integer of at least 1"):
        PrimalTableRegressor(**{**SMALL, "networks": 0}).fit(X, Y)


@pytest.mark.parametrize("wrong", [[None, 1.0], [0.0, 0.0], [0.0, float("inf")], "ab", [0.0]])
def test_a_scale_that_is_damaged_is_told(additive, tmp_path, wrong):
    additive.save(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    content = json.loads(path.read_text())
    content["columns"]["known"][0] = wrong
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match="saved is damaged: "):
        PrimalTableRegressor.load(tmp_path / "saved")


def test_folders_of_one_network_say_nothing_of_others(tmp_path):
    """Folders of versions that had one network and no parameter for more."""
    model = PrimalTableRegressor(**{**SMALL, "networks": 1}).fit(X, Y)
    model.save(tmp_path / "old")
    file = next((tmp_path / "old").glob("*.json"))
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["networks"], content["parameters"]["networks"]
    file.write_text(json.dumps(content), encoding="utf-8")
    found = PrimalTableRegressor.load(tmp_path / "old")
    assert found.networks == 1
    np.testing.assert_array_equal(found.predict(X), model.predict(X))


def test_softmax_keeps_the_rows(tmp_path):
    model = PrimalTableRegressor(context="additive", attention="softmax", **SMALL).fit(X, Y)
    found = again(model, tmp_path)
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="kept row by row"):
        model.forget(X[:5], Y[:5])


@pytest.mark.slow
def test_it_looks_up_the_label_of_a_duplicate():
    """Every row has a twin with a label that nothing else tells."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, 6))
    labels = rng.integers(2, size=400)
    model = PrimalTableClassifier(
        random_state=0, networks=1, steps=300, epochs=0, validation_fraction=0.0, dropout=0.0
    ).fit(np.tile(rows, (2, 1)), np.tile(labels, 2))
    assert model.score(rows, labels) > 0.9
