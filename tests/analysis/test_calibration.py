"""Calibration figures against definitions written out, scikit-learn, and what must hold of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from primal_attention import calibration


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(0)
    logits = 2.5 * rng.normal(size=(300, 4))
    labels = np.array([rng.choice(4, p=row) for row in calibration.softmax(logits / 2)])
    return logits, labels


def test_figures_are_their_definitions(cases):
    p, y = calibration.softmax(cases[0]), cases[1]
    found = calibration.measure(p, y, resamples=0)
    assert found["nll"].value == pytest.approx(log_loss(y, p), abs=1e-12)
    both = p[:, :2] / p[:, :2].sum(1, keepdims=True)  # scikit-learn has half of it, of two classes
    expected = 2 * brier_score_loss((y == 1).astype(int), both[:, 1])
    assert calibration.brier(both, (y == 1).astype(int)) == pytest.approx(expected)
    confidence, right = p.max(1), p.argmax(1) == y
    error = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert found["ece"].value == pytest.approx(error, abs=1e-12)
    order = np.argsort(-confidence)
    risks = [1 - right[order[: k + 1]].mean() for k in range(len(y))]
    assert found["aurc"].value == pytest.approx(np.mean(risks), abs=1e-12)
    np.testing.assert_allclose(found.risk, risks)
    assert found.risk[-1] == pytest.approx(1 - found["accuracy"].value)
    assert sum(one.count for one in found.bins) == len(y)


def test_a_perfect_ordering_has_no_excess():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.55, 0.45]])
    assert calibration.measure(p, [0, 0, 1, 1], resamples=0)["excess_aurc"].value == 0
    assert calibration.measure(p, [1, 1, 0, 0], resamples=0)["excess_aurc"].value > 0


def test_ties_are_shared():
    p = np.full((4, 2), 0.5)
    for labels in ([0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]):
        found = calibration.measure(p, labels, resamples=0)
        np.testing.assert_allclose(found.risk, 0.5)


def test_temperature_is_found_and_leaves_the_classes(cases):
    logits, labels = cases
    t = calibration.fit_temperature(logits, labels)
    assert 1.5 < t < 2.7  # labels were drawn at 2
    best = calibration.nll(calibration.tempered(logits, t), labels)
    for other in (0.9 * t, 1.1 * t):
        assert calibration.nll(calibration.tempered(logits, other), labels) > best
    np.testing.assert_array_equal(calibration.tempered(logits, t).argmax(1), logits.argmax(1))
    again = calibration.fit_temperature(logits / t, labels)
    assert again == pytest.approx(1.0, abs=1e-6)
    difference = calibration.compare(
        calibration.softmax(logits), calibration.tempered(logits, t), labels, resamples=200
    )
    assert difference["ece"].sure
    assert difference["ece"].value < 0
    assert difference["accuracy"].value == 0
    assert not difference["accuracy"].sure


def test_temperature_of_separable_and_of_useless_logits():
    assert calibration.fit_temperature([[1.0, 0.0]] * 3, [0, 0, 0]) == pytest.approx(1e-3)
    assert calibration.fit_temperature([[1.0, 0.0]] * 4, [0, 1, 1, 1]) == pytest.approx(1e3)


def test_intervals_hold_the_value_and_pairs_are_paired(cases):
    p, y = calibration.softmax(cases[0]), cases[1]
    found = calibration.measure(p, y, resamples=200)
    for name in ("accuracy", "nll", "brier", "aurc"):
        assert found[name].low < found[name].value < found[name].high
    same = calibration.compare(p, p, y, resamples=50)
    assert all(one.low == one.high == 0 and not one.sure for one in same.values())
    there, back = (
        calibration.compare(p, 0.9 * p + 0.025, y, resamples=99),
        calibration.compare(0.9 * p + 0.025, p, y, resamples=99),
    )
    assert there["nll"].value == pytest.approx(-back["nll"].value)
    assert there["nll"].low == pytest.approx(-back["nll"].high)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
)
@settings(max_examples=40, deadline=None)
def test_auroc_is_that_of_scikit_learn(low, high):
    labels = [0] * len(low) + [1] * len(high)
    assert calibration.auroc(low, high) == pytest.approx(roc_auc_score(labels, low + high))


def test_strange_cases_and_ensembles():
    sure, unsure = np.array([[0.99, 0.01], [0.02, 0.98]]), np.array([[0.5, 0.5], [0.6, 0.4]])
    assert calibration.out_of_distribution(sure, unsure, resamples=20).value == 1.0
    np.testing.assert_allclose(calibration.ensemble([sure, unsure])[0], [0.745, 0.255])
    members = calibration.ensemble([sure, unsure])
    y = [0, 1]
    assert (
        calibration.nll(members, y) <= (calibration.nll(sure, y) + calibration.nll(unsure, y)) / 2
    )


def test_what_is_refused():
    p = np.array([[0.4, 0.6]])
    for wrong, labels, message in (
        ([0.4, 0.6], [0], "expected \\(cases, classes\\)"),
        ([[0.4, 0.7]], [0], "add up to 1"),
        (p, [2], "from 2 to 2; expected 0 to 1"),
        (p, [0.5], "expected integers"),
        (p, [0, 1], "shape \\(2,\\)"),
    ):
        with pytest.raises(ValueError, match=message):
            calibration.measure(wrong, labels)
    with pytest.raises(ValueError, match="temperature is 0"):
        calibration.tempered(p, 0)
    with pytest.raises(ValueError, match="shapes"):
        calibration.ensemble([])


def test_members_are_judged_alone_and_together(cases):
    p, y = calibration.softmax(cases[0]), cases[1]
    q = calibration.tempered(cases[0], 2.0)
    both = calibration.measure(np.stack([p, q]), y, resamples=20)
    for name in ("ece", "nll", "aurc"):
        each = [calibration.measure(one, y, resamples=0)[name].value for one in (p, q)]
        assert both[name].value == pytest.approx(np.mean(each))
    assert sum(one.count for one in both.bins) == 2 * len(y)
    against = calibration.compare(np.stack([p, p]), q, y, resamples=20)
    alone = calibration.compare(p, q, y, resamples=20)
    assert against["nll"].low == pytest.approx(alone["nll"].low)


def test_groups_are_drawn_whole(cases):
    """Copies of a case tell nothing new: with groups the interval is that of the cases alone."""
    p, y = calibration.softmax(cases[0]), cases[1]
    alone = calibration.measure(p, y, resamples=200)["nll"]
    many = np.repeat(p, 9, 0), np.repeat(y, 9)
    naive = calibration.measure(*many, resamples=200)["nll"]
    grouped = calibration.measure(*many, groups=np.repeat(np.arange(300), 9), resamples=200)["nll"]
    assert grouped.value == pytest.approx(alone.value)
    assert (grouped.low, grouped.high) == pytest.approx((alone.low, alone.high))
    assert naive.high - naive.low < 0.5 * (alone.high - alone.low)
    one = calibration.measure(p, y, groups=np.zeros(300), resamples=200)["nll"]
    assert one.low < one.value < one.high  # a single group is drawn by cases
    with pytest.raises(ValueError, match=r"groups have shape \(3,\); expected \(300,\)"):
        calibration.measure(p, y, groups=[1, 2, 3])
