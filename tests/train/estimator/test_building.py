"""An ensemble: folds, mixture, budget, processes."""

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention.train.estimator import PrimalFormerClassifier, PrimalRocketClassifier
from primal_attention.train.estimator.building import folds
from primal_attention.train.estimator.problem import Classes, Numbers

SMALL = {
    "width": 8, "heads": 2, "feedforward": 8, "steps": 3, "epochs": 1, "networks": 1, "groups": 2,
    "random_state": 0,
}  # fmt: skip


def sines(cases, seed=0, length=40):
    """Three frequencies of random phase."""
    rng = np.random.default_rng(seed)
    y = np.arange(cases) % 3
    time = np.arange(length) * np.array([0.3, 0.45, 0.6])[y][:, None, None]
    noise = 0.3 * rng.standard_normal((cases, 1, length))
    return np.sin(time + rng.uniform(0, 2 * np.pi, (cases, 1, 1))) + noise, y


def small(**changes):
    return PrimalFormerClassifier(**(SMALL | changes))


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("fast", 1),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [("net", 80), ("best", 30)]),
    ],
)
def test_frequencies_of_random_phase_are_told_apart(kind, steps):
    sizes = {"width": 32, "feedforward": 32, "groups": 8, "lr": 5e-3}
    classifier = small(ensemble=kind, steps=steps, **sizes).fit(*sines(90))
    assert classifier.score(*sines(120, seed=1)) >= 0.95


def test_folds_are_stratified_and_all_of_it():
    labels = torch.tensor([0] * 9 + [1] * 6 + [2] * 4)
    found = folds(Classes(labels, 3), 3, seed=0)
    assert sorted(np.concatenate(found).tolist()) == list(range(19))
    counts = np.array([np.bincount(labels[f].numpy(), minlength=3) for f in found])
    assert (counts.max(0) - counts.min(0) <= 1).all()
    other = folds(Classes(labels, 3), 3, seed=1)
    assert any(set(a) != set(b) for a, b in zip(found, other, strict=True))
    values = folds(Numbers(torch.linspace(0, 1, 30)), 5, seed=0)
    assert [len(f) for f in values] == [6] * 5


def test_best_is_the_mixture_that_it_says():
    X, y = sines(24)
    classifier = small(networks=2).fit(X, y)
    parts, mixture = classifier.ensemble_, classifier.mixture_
    assert len(parts.nets) == 2
    assert min(mixture.values()) > 0
    alone = []  # outputs up to a constant for each case
    for chosen in (
        {"frozen": None},
        *({"frozen": None, "nets": (net,)} for net in parts.nets),
        {"nets": ()},
    ):
        one = small(ensemble="fast").fit(X, y)
        one.ensemble_ = dataclasses.replace(parts, **chosen)
        alone.append(np.log(one.predict_proba(X)))
    nets, *each, frozen = (one - one.mean(1, keepdims=True) for one in alone)
    assert np.abs(each[0] - each[1]).max() > 1e-6
    np.testing.assert_allclose(nets, np.mean(each, 0), rtol=1e-8, atol=1e-10)
    mixed = np.exp(mixture["nets"] * nets + mixture["frozen"] * frozen)
    mixed /= mixed.sum(1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(X), mixed, rtol=1e-8)
    assert classifier.left_out_proba_.shape == (24, 3)
    np.testing.assert_allclose(classifier.left_out_proba_.sum(1), 1.0)


def test_fast_is_the_frozen_bank():
    X, y = sines(24)
    rocket = PrimalRocketClassifier(groups=2, random_state=0, n_jobs=1).fit(X, y)
    fast = small(ensemble="fast").fit(X, y)
    np.testing.assert_allclose(fast.predict_proba(X), rocket.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(fast.transform(X), rocket.transform(X), rtol=1e-5, atol=1e-6)
    assert fast.model_ is None


def test_net_is_best_without_the_bank():
    X, y = sines(24)
    best, net = small().fit(X, y), small(ensemble="net").fit(X, y)
    assert net.mixture_ == {"nets": 1.0, "frozen": 0.0} | {
        "temperature": best.mixture_["temperature"]
    }
    best.ensemble_ = dataclasses.replace(best.ensemble_, frozen=None)
    np.testing.assert_array_equal(net.predict_proba(X), best.predict_proba(X))
    assert net.left_out_proba_.shape == (24, 3)


def test_without_folds_there_is_one_network():
    X, y = sines(24)
    one, whole = small(ensemble="net", folds=0).fit(X, y), small(ensemble="net").fit(X, y)
    assert len(one.ensemble_.nets) == 1
    assert one.mixture_ == {"nets": 1.0, "frozen": 0.0, "temperature": 1.0}
    assert one.left_out_proba_ is None
    np.testing.assert_array_equal(one.transform(X), whole.transform(X))


@pytest.mark.slow
def test_processes_give_the_same():
    X, y = sines(24)
    one, two = (small(n_jobs=n).fit(X, y) for n in (None, 2))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_too_few_cases_are_told():
    X, y = sines(6)
    with pytest.warns(UserWarning, match="X has 6 cases, too few to hold out folds"):
        classifier = small().fit(X, y)
    assert classifier.mixture_["frozen"] == 1.0
    assert classifier.predict(X).shape == (6,)
    with pytest.warns(UserWarning, match="networks answer alone; expected at least 12"):
        assert len(small(ensemble="net").fit(X, y).ensemble_.nets) == 1


@pytest.mark.parametrize(("kind", "number"), [("best", 0), ("net", 1), ("best", 1)])
def test_a_wrong_number_of_folds(kind, number):
    with pytest.raises(ValueError, match=f"folds is {number}; expected at least 2"):
        small(ensemble=kind, folds=number).fit(*sines(24))


def test_a_time_budget():
    X, y = sines(24)
    assert small(steps=100_000, ensemble="net", folds=0, max_minutes=0.01).fit(X, y).n_iter_ < 2000
    with pytest.warns(UserWarning, match="the frozen bank answers alone"):
        assert small(steps=100_000, max_minutes=1e-5).fit(X, y).model_ is None
    assert small(max_minutes=10).fit(X, y).n_iter_ == 3


def hot(labels):
    return torch.nn.functional.one_hot(labels, 2).double()


def test_a_temperature_sharpens_what_is_too_soft():
    labels = torch.arange(200) % 2
    assert Classes(labels, 2).temperature(0.5 * hot(labels)) > 4
    values = torch.randn(200, generator=torch.Generator().manual_seed(0)).double()
    assert Numbers(values).temperature(2.0 * values[:, None]) == pytest.approx(0.5, abs=1e-3)


def test_a_mixture_is_not_worse_than_its_better_part():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    noise = torch.randn(2, 60, 2, generator=generator, dtype=torch.float64)
    problem = Classes(labels, 2)
    for first, second in ((2.0, 0.0), (0.0, 2.0), (2.0, 2.0), (0.0, 0.0)):
        nets, frozen = (s * hot(labels) + n for s, n in zip((first, second), noise, strict=True))
        nets, frozen = (problem.temperature(one) * one for one in (nets, frozen))
        a, b = problem.factors(nets, frozen)
        mixed = a * nets + b * frozen
        losses = [float(problem.loss(one.softmax(1)).mean()) for one in (mixed, nets, frozen)]
        assert losses[0] < min(losses[1:]) + 0.01


def test_few_cases_speak_for_equal_factors():
    ratios = []
    for cases in (12, 1200):
        labels = torch.arange(cases) % 2
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(2, cases, 2, generator=generator, dtype=torch.float64)
        nets, frozen = Classes(labels, 2).factors(2 * hot(labels) + noise[0], noise[1])
        ratios.append(nets / frozen)
    assert ratios[0] < 3 < ratios[1]


def test_ridges_are_judged_without_the_folds_that_networks_lack(monkeypatch):
    """The weights see what the ridges say of whole folds, not of single cases."""
    from primal_attention.train.estimator import building

    seen = []
    whole = building._mixed
    monkeypatch.setattr(building, "_mixed", lambda *given: (seen.append(given), whole(*given))[1])
    X, y = sines(24)
    classifier = small().fit(X, y)
    ((_, problem, nets, frozen),) = seen
    nets = problem.temperature(nets) * nets
    assert classifier.ensemble_.factors == problem.factors(nets, frozen.by_folds)
    assert not torch.allclose(frozen.by_folds, frozen.alone)
