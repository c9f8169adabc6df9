"""Sparse kernel machines: exact where they must be, sparse where they can be."""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.kernel_ridge import KernelRidge

from primal_attention import SparseKernelClassifier, SparseKernelRegressor
from primal_attention.runs.errors import RunError

RNG = np.random.default_rng(0)


def test_all_points_and_no_l1_are_kernel_ridge():
    X = RNG.standard_normal((50, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    ours = SparseKernelRegressor(
        50, kernel="rbf", gamma=0.5, learn_points=False, ridge=1e-2, restarts=1
    ).fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    target = (y - y.mean()) / y.std()
    ridge = KernelRidge(alpha=50 * 1e-2, kernel="rbf", gamma=0.5).fit(scaled, target)
    new = RNG.standard_normal((20, 3))
    theirs = ridge.predict((new - X.mean(0)) / X.std(0)) * y.std() + y.mean()
    np.testing.assert_allclose(ours.predict(new), theirs, rtol=1e-6, atol=1e-8)


def test_a_planted_product_is_found():
    """y is the sign of x_0 x_1 among 8 columns of noise; the machine names the two."""
    X = RNG.standard_normal((1500, 10))
    y = X[:, 0] * X[:, 1] > 0
    model = SparseKernelClassifier(4, steps=200, restarts=2, random_state=0).fit(X[:500], y[:500])
    assert model.score(X[500:], y[500:]) >= 0.95
    assert model.columns_.tolist() == [0, 1]
    assert model.n_numbers_ < 30
    assert np.isnan(model.preimages_[:, 2:]).all()


def test_a_penalty_that_would_select_nothing_is_refused():
    X, y = RNG.standard_normal((20, 2)), np.arange(20) % 2
    with pytest.raises(ValueError, match="where a coordinate of zero still counts"):
        SparseKernelClassifier(kernel="rbf", l1=0.1).fit(X, y)
    model = SparseKernelClassifier(2, kernel="rbf", steps=5, restarts=1, random_state=0).fit(X, y)
    assert model.predict_proba(X).shape == (20, 2)
    with pytest.raises(ValueError, match="kernel is 'laplace'"):
        SparseKernelClassifier(kernel="laplace").fit(X, y)


def test_three_classes_in_a_folder(tmp_path):
    X = RNG.standard_normal((60, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = SparseKernelClassifier(3, steps=20, restarts=1, random_state=0).fit(X, y)
    model.save(tmp_path / "saved")
    again = SparseKernelClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel": ["poly", 1.0, 10**400, 1.0]},
        {"kernel": ["poly", 1.0, 2, "x"]},
        {"kernel": ["laplace", 1.0, 2, 1.0]},
        {"classes": {"dtype": "<i8", "values": [1]}},
        {"features": {}},
    ],
)
def test_a_damaged_folder_is_told(tmp_path, wrong):
    model = SparseKernelClassifier(1, steps=1, restarts=1)
    model.fit(RNG.standard_normal((8, 3)), np.arange(8) % 2).save(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(RunError, match="saved is damaged: "):
        SparseKernelClassifier.load(tmp_path / "saved")
