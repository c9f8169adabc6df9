"""The closed form of leave-one-out against leaving every case out."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.linear_model import Ridge as PlainRidge

from primal_attention.train.estimator.rocket.ridge import ALPHAS, Scaling, fit_ridge


def problem(cases=14, width=35, outputs=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale = 1 + torch.arange(width) % 3
    features = torch.randn(cases, width, generator=generator) * scale + scale
    targets = torch.randn(cases, outputs, generator=generator, dtype=torch.float64)
    return features, targets + features[:, :1]


def plain_left_out(features, targets, alpha):
    x, y = features.double().numpy(), targets.numpy()
    found = np.empty_like(y)
    for i in range(len(x)):
        kept = np.arange(len(x)) != i
        found[i] = PlainRidge(alpha=alpha, solver="svd").fit(x[kept], y[kept]).predict(x[i : i + 1])
    return found


@pytest.mark.parametrize("width", [35, 3], ids=["wide", "narrow"])
def test_leaving_out_is_exact_and_the_penalty_is_the_best(width):
    given, targets = problem(width=width)
    scaling = Scaling.fit(given)
    features = scaling.apply_(given.clone())
    ridge, unseen = fit_ridge(features, scaling, targets)
    diagonal = float((features.double() ** 2).sum(1).mean())
    every = {a: plain_left_out(features, targets, a * diagonal) for a in ALPHAS.tolist()}
    best = min(every, key=lambda a: ((every[a] - targets.numpy()) ** 2).sum())
    assert ridge.alpha == best
    np.testing.assert_allclose(unseen.alone.numpy(), every[best], rtol=1e-3, atol=1e-4)
    whole = PlainRidge(alpha=best * diagonal, solver="svd")
    whole.fit(features.double().numpy(), targets.numpy())
    expected = whole.predict(features.double().numpy())
    np.testing.assert_allclose(ridge.scores(given).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [35, 3], ids=["wide", "narrow"])
@pytest.mark.parametrize("form", ["dual", "primal"])
def test_leaving_a_fold_out_is_exact(width, form):
    given, targets = problem(cases=24, width=width)
    scaling = Scaling.fit(given)
    features = scaling.apply_(given.clone())
    folds = [torch.tensor([0, 3, 5, 7, 20]), torch.tensor([1, 2]), torch.tensor([4, *range(8, 20)])]
    landmarks = features if form == "dual" else features[:23]
    others = None if form == "dual" else features[23:] @ landmarks.T
    ridge, unseen = fit_ridge(landmarks, scaling, targets, others, folds)
    if width == 35 and form == "primal":  # then its span is that of 23 cases, not that of all
        features = torch.linalg.lstsq(landmarks.T, features.T).solution.T @ landmarks
    x, y = features.double().numpy(), targets.numpy()
    centred = x - x.mean(0)
    alpha = ridge.alpha * (centred**2).sum() / len(x)
    for fold in folds:
        kept = np.setdiff1d(np.arange(24), fold.numpy())
        plain = PlainRidge(alpha=alpha, solver="svd").fit(x[kept], y[kept])
        expected = plain.predict(x[fold.numpy()])
        np.testing.assert_allclose(unseen.by_folds[fold].numpy(), expected, rtol=2e-3, atol=2e-3)


def test_the_primal_form_is_the_dual_if_the_landmarks_span_the_features():
    given, targets = problem(cases=40, width=13)
    scaling = Scaling.fit(given[:20])
    features = scaling.apply_(given.clone())
    exact, exact_unseen = fit_ridge(features, scaling, targets)
    landmarks, others = features[:20], features[20:]
    ridge, unseen = fit_ridge(landmarks, scaling, targets, others @ landmarks.T)
    assert ridge.alpha == exact.alpha
    torch.testing.assert_close(unseen.alone, exact_unseen.alone, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ridge.scores(given), exact.scores(given), rtol=1e-3, atol=1e-3)


def test_fewer_landmarks_are_close():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(200, 4, generator=generator)
    given = hidden @ torch.randn(4, 60, generator=generator)
    given += 0.05 * torch.randn(200, 60, generator=generator)
    targets = hidden[:, :2].double()
    scaling = Scaling.fit(given[:30])
    features = scaling.apply_(given.clone())
    ridge, unseen = fit_ridge(features[:30], scaling, targets, features[30:] @ features[:30].T)
    assert (ridge.scores(given) - targets).abs().mean() < 0.1
    assert (unseen.alone - targets).abs().mean() < 0.1


def test_columns_have_the_same_deviation_and_rows_the_mean_square_one():
    given, _ = problem(cases=50, width=300)
    scaled = Scaling.fit(given).apply_(given.clone())
    torch.testing.assert_close((scaled**2).sum(1).mean(), torch.tensor(1.0))
    torch.testing.assert_close(scaled.std(0, correction=0), torch.full((300,), 300**-0.5))


def test_constant_columns_have_no_say():
    given, targets = problem()
    spoiled = torch.cat([given, torch.full((14, 3), 1e6)], 1)
    scaling = Scaling.fit(spoiled)
    ridge, _ = fit_ridge(scaling.apply_(spoiled.clone()), scaling, targets)
    assert (ridge.weights[-3:] == 0).all()
    other = Scaling.fit(given)
    expected, _ = fit_ridge(other.apply_(given.clone()), other, targets)
    torch.testing.assert_close(ridge.scores(spoiled), expected.scores(given), rtol=1e-5, atol=1e-6)


def test_without_any_information_the_mean_is_predicted():
    targets = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    given = torch.ones(3, 4)
    scaling = Scaling.fit(given)
    ridge, unseen = fit_ridge(scaling.apply_(given.clone()), scaling, targets)
    torch.testing.assert_close(ridge.scores(given), torch.full((3, 1), 3.0).double())
    torch.testing.assert_close(unseen.alone[:, 0], torch.tensor([4.0, 3.5, 1.5]).double())
