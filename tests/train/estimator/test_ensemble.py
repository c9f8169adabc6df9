"""Networks whose readout is a Gaussian: predictions are means over draws, and stay when saved."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention.attention.primal.readout import variational_layers
from primal_attention.train.estimator import PrimalFormerClassifier, PrimalFormerRegressor

SMALL = {
    "ensemble": "net", "width": 8, "heads": 2, "feedforward": 8, "rank": 4, "steps": 3,
    "epochs": 1, "networks": 1, "folds": 0, "random_state": 0, "uncertainty": "readout",
}  # fmt: skip
RNG = np.random.default_rng(0)
X = [RNG.standard_normal((2, n)) for n in (5, 8, 7, 3, 6, 4)]
Y = np.array(["a", "b"] * 3)


def test_probabilities_are_means_over_draws(tmp_path):
    classifier = PrimalFormerClassifier(**SMALL).fit(X, Y)
    ((_, posterior),) = variational_layers(classifier.model_)
    found = classifier.predict_proba(X)
    np.testing.assert_allclose(found.sum(1), 1.0)
    np.testing.assert_allclose(classifier.predict_proba(X[2:3]), found[2:3])  # in any company
    classifier.save(tmp_path / "saved")
    again = PrimalFormerClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(X), found)
    posterior.factor.data.zero_().fill_diagonal_(-30.0)  # no spread: the mean alone
    sharp = classifier.predict_proba(X)
    assert np.abs(sharp - found).max() > 1e-6
    classifier.model_.encoder.layers[-1].attention._modules.pop("gaussian")
    np.testing.assert_allclose(classifier.predict_proba(X), sharp, atol=1e-9)


def test_what_is_refused():
    with pytest.raises(ValueError, match="uncertainty is 'readout'; expected 'none'"):
        PrimalFormerRegressor(**SMALL).fit(X, np.arange(6.0))
    with pytest.raises(ValueError, match="uncertainty is 'much'"):
        PrimalFormerClassifier(**SMALL | {"uncertainty": "much"}).fit(X, Y)
    with pytest.raises(ValueError, match="no primal layer"):
        PrimalFormerClassifier(**SMALL, attention="softmax").fit(X, Y)
