"""KernelSVD: scikit-learn's own checks, numpy's SVD, and the two sides of out-of-sample."""

import importlib
import itertools
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("sklearn")

from sklearn.decomposition import KernelPCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from primal_attention.theory.estimator import KernelSVD

KERNELS = ("linear", "cosine", "rbf", "sne", "poly")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def dense(name, X, Z, gamma):
    """The kernels, written out pair by pair."""
    X, Z = np.asarray(X), np.asarray(Z)
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            gauss = np.exp(-gamma * np.sum((x - z) ** 2))
            K[i, j] = {
                "linear": x @ z,
                "cosine": x @ z / np.linalg.norm(x) / np.linalg.norm(z),
                "rbf": gauss,
                "sne": gauss,
                "poly": (gamma * (x @ z) + 1.0) ** 3,
            }[name]
    return K / K.sum(1, keepdims=True) if name == "sne" else K


def centred(K):
    return K - K.mean(1, keepdims=True) - K.mean(0, keepdims=True) + K.mean()


@parametrize_with_checks(
    [
        KernelSVD(),
        KernelSVD(kernel="sne", center=True),
        KernelSVD(kernel="rbf", n_landmarks=5, random_state=0),
        KernelSVD(kernel="precomputed"),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("shape", [(12, 12), (15, 7), (6, 11)])
def test_precomputed_is_numpys_svd(rng, shape):
    K = rng.normal(size=shape)
    U, sigma, Vh = np.linalg.svd(K, full_matrices=False)
    model = KernelSVD(kernel="precomputed").fit(K)
    assert_allclose(model.singular_values_, sigma, rtol=0, atol=1e-12 * sigma[0])
    for k in range(len(sigma)):
        assert_allclose(
            np.outer(model.left_vectors_[:, k], model.right_vectors_[:, k]),
            np.outer(U[:, k], Vh[k]),
            atol=1e-9,
        )
    assert_allclose(model.explained_variance_ratio_, sigma**2 / (sigma**2).sum())
    assert_allclose(model.inverse_transform(), K, atol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_two_views_against_the_kernel_written_out(rng, name, center):
    X, Z = rng.normal(size=(13, 4)), rng.normal(size=(9, 4))
    K = dense(name, X, Z, 0.3)
    target = centred(K) if center else K
    model = KernelSVD(kernel=name, gamma=0.3, center=center).fit(X, Z=Z)
    sigma = np.linalg.svd(target, compute_uv=False)
    assert_allclose(model.singular_values_, sigma[: len(model.singular_values_)], atol=1e-12)
    assert_allclose(model.inverse_transform(), K, atol=1e-10)
    # K H_r = H_e Sigma and K^T H_e = H_r Sigma
    H_e, H_r = model.left_vectors_, model.right_vectors_
    assert_allclose(target @ H_r, H_e * model.singular_values_, atol=1e-10)
    assert_allclose(target.T @ H_e, H_r * model.singular_values_, atol=1e-10)


@pytest.mark.parametrize("landmarks", [None, 7])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_training_points_as_new_points(rng, name, center, landmarks):
    X, Z = rng.normal(size=(13, 4)), rng.normal(size=(9, 4))
    model = KernelSVD(4, kernel=name, center=center, n_landmarks=landmarks, random_state=1)
    e, r = model.fit_transform(X, Z=Z, side="both")
    assert_allclose(model.transform(X), e, atol=1e-9)
    assert_allclose(model.transform(Z, side="right"), r, atol=1e-9)
    both = model.transform(X, side="both", Z=Z)
    assert_allclose(both[0], e, atol=1e-9)
    assert_allclose(both[1], r, atol=1e-9)


@pytest.mark.parametrize("center", [False, True])
def test_new_points_get_what_the_formula_says(rng, center):
    X, Z, new = rng.normal(size=(8, 3)), rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    model = KernelSVD(3, kernel="sne", gamma=0.5, center=center).fit(X, Z=Z)
    K, left = dense("sne", X, Z, 0.5), dense("sne", new, Z, 0.5)
    gauss = dense("rbf", X, Z, 0.5).sum(1, keepdims=True)
    right = dense("rbf", X, new, 0.5) / gauss  # rows keep the sums over the fitted Z
    if center:
        left = left - left.mean(1, keepdims=True) - K.mean(0) + K.mean()
        right = right - right.mean(0) - K.mean(1, keepdims=True) + K.mean()
    assert_allclose(model.transform(new), left @ model.right_vectors_, atol=1e-12)
    assert_allclose(model.transform(new, "right"), right.T @ model.left_vectors_, atol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_nystrom_with_all_points_is_exact(rng, name, center):
    X, Z = rng.normal(size=(20, 3)), rng.normal(size=(17, 3))
    options = {"kernel": name, "center": center, "gamma": 0.4}
    exact = KernelSVD(3, **options).fit(X, Z=Z)
    model = KernelSVD(3, n_landmarks=20, **options).fit(X, Z=Z)
    assert_allclose(model.singular_values_, exact.singular_values_, atol=1e-10)
    assert_allclose(abs(model.left_vectors_), abs(exact.left_vectors_), atol=1e-7)
    assert_allclose(model.inverse_transform(), exact.inverse_transform(), atol=1e-7)
    assert model.nystrom_error_ < 1e-9


@pytest.mark.parametrize("name", ["rbf", "sne"])
def test_nystrom_error_is_the_error(rng, name):
    X, Z = rng.normal(size=(150, 2)), rng.normal(size=(120, 2))
    K = dense(name, X, Z, 0.3)
    errors = []
    for landmarks in (5, 20, 60):
        model = KernelSVD(kernel=name, gamma=0.3, n_landmarks=landmarks, random_state=0)
        model.fit(X, Z=Z)
        true = np.linalg.norm(K - model.inverse_transform()) / np.linalg.norm(K)
        assert model.nystrom_error_ == pytest.approx(true, rel=1e-4, abs=1e-7)
        assert model.nystrom_error_rows_ == 150
        errors.append(true)
    assert errors[-1] < (0.1 if name == "rbf" else 1.0) * errors[0]


@pytest.mark.parametrize("name", ["rbf", "sne", "poly"])
def test_nystrom_error_falls_with_the_landmarks(name):
    """And is below 1, which zero in the place of K has."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    errors = [
        KernelSVD(8, kernel=name, n_landmarks=n, random_state=0).fit(X).nystrom_error_
        for n in (30, 60, 120, 240, 400)
    ]
    assert errors[0] < 0.4
    assert all(after < before + 1e-9 for before, after in itertools.pairwise(errors))
    assert errors[-1] < 1e-9


def test_nystrom_of_a_precomputed_kernel_of_low_rank_is_exact(rng):
    K = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 50))
    model = KernelSVD(4, kernel="precomputed", n_landmarks=12, random_state=0).fit(K)
    assert_allclose(model.singular_values_, np.linalg.svd(K, compute_uv=False)[:4], rtol=1e-9)
    assert_allclose(model.transform(K), model.left_vectors_ * model.singular_values_, atol=1e-8)
    right = model.transform(K.T, side="right")
    assert_allclose(right, model.right_vectors_ * model.singular_values_, atol=1e-8)


@pytest.mark.parametrize("shape", [(9, 9), (12, 5), (5, 12)])
def test_rows_and_columns_with_the_linear_kernel_are_the_svd_of_the_matrix(rng, shape):
    A = rng.normal(size=shape)
    model = KernelSVD(kernel="linear", views="columns").fit(A)
    assert_allclose(model.singular_values_, np.linalg.svd(A, compute_uv=False), atol=1e-12)
    assert_allclose(model.inverse_transform(), A, atol=1e-11)
    assert_allclose(model.transform(A), A @ model.right_vectors_, atol=1e-11)
    assert_allclose(model.transform(A.T, side="right"), A.T @ model.left_vectors_, atol=1e-11)


def test_rows_and_columns_as_they_are(rng):
    A = rng.normal(size=(7, 7))
    model = KernelSVD(kernel="rbf", gamma=0.1, views="columns", compatibility="identity").fit(A)
    sigma = np.linalg.svd(dense("rbf", A, A.T, 0.1), compute_uv=False)
    assert_allclose(model.singular_values_, sigma, atol=1e-12)


def test_a_symmetric_kernel_gives_kernel_pca(rng):
    X = rng.normal(size=(20, 3))
    ours = KernelSVD(4, kernel="rbf", gamma=0.5, center=True).fit(X)
    theirs = KernelPCA(4, kernel="rbf", gamma=0.5).fit(X)
    assert_allclose(ours.singular_values_, theirs.eigenvalues_, rtol=1e-9)


def test_a_callable_kernel_between_different_widths(rng):
    X, Z, W = rng.normal(size=(8, 3)), rng.normal(size=(6, 5)), rng.normal(size=(3, 5))
    model = KernelSVD(kernel=lambda x, z, w: x @ w @ z.T, kernel_params={"w": W}).fit(X, Z=Z)
    sigma = np.linalg.svd(X @ W @ Z.T, compute_uv=False)[:3]
    assert_allclose(model.singular_values_, sigma, rtol=1e-9)
    assert model.transform(Z[:2], side="right").shape == (2, 3)


def test_in_a_pipeline_with_names(rng):
    X = rng.normal(size=(10, 3))
    pipeline = make_pipeline(StandardScaler(), KernelSVD(2, kernel="sne"))
    assert pipeline.fit_transform(X).shape == (10, 2)
    assert list(pipeline.get_feature_names_out()) == ["kernelsvd0", "kernelsvd1"]


@pytest.mark.parametrize(
    ("options", "fit", "message"),
    [
        ({"kernel": "cosin"}, {}, r"kernel is 'cosin' \(did you mean 'cosine'\?\)"),
        ({"n_components": 0}, {}, "n_components is 0; expected an integer of at least 1"),
        ({"gamma": -1.0}, {}, "gamma is -1.0; expected a positive number"),
        ({"views": "columns", "compatibility": "identity"}, {}, "expects a square matrix"),
        ({"views": "columns"}, {"Z": np.ones((3, 2))}, "Z was given"),
        ({}, {"Z": np.ones((3, 5))}, "Z has 5 features; expected 2"),
        ({"kernel": lambda x, z: x}, {}, r"the kernel returned shape \(4, 2\)"),
    ],
)
def test_wrong_arguments_are_one_sentence(rng, options, fit, message):
    with pytest.raises(ValueError, match=message):
        KernelSVD(**options).fit(rng.normal(size=(4, 2)), **fit)


def test_wrong_sides_are_refused(rng):
    X = rng.normal(size=(5, 3))
    model = KernelSVD(2).fit(X)
    with pytest.raises(ValueError, match="side is 'lefd'"):
        model.transform(X, side="lefd")
    with pytest.raises(ValueError, match="right points have 2 features; expected 3"):
        model.transform(X[:, :2], side="right")
    with pytest.raises(ValueError, match="left has 3 components; expected 2"):
        model.inverse_transform(X, X[:, :2])
    with pytest.raises(ValueError, match="without Z"):
        KernelSVD(2, kernel="precomputed").fit(X).transform(X, side="both")


def test_missing_scikit_learn_is_one_sentence(monkeypatch):
    monkeypatch.delitem(sys.modules, "primal_attention.theory.estimator")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"install 'primal-attention\[train\]'"):
        importlib.import_module("primal_attention.theory.estimator")


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_learned_landmarks_are_better_than_random_ones(kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((200, 4)), rng.standard_normal((150, 4))
    options = {"kernel": kernel, "n_landmarks": 12, "random_state": 0}
    random = KernelSVD(6, **options).fit(X, Z=Z)
    learned = KernelSVD(6, landmarks="learned", **options).fit(X, Z=Z)
    assert learned.nystrom_error_ < random.nystrom_error_
    assert learned.left_vectors_.shape == (200, 6)
    e = learned.left_vectors_ * learned.singular_values_
    np.testing.assert_allclose(learned.transform(X), e, atol=1e-6 * np.abs(e).max())


def test_landmarks_that_cannot_be_learned_are_refused():
    X = np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(ValueError, match=r'landmarks is "learned" with kernel .sne.; expected'):
        KernelSVD(kernel="sne", landmarks="learned", n_landmarks=5).fit(X)
    with pytest.raises(ValueError, match="expected n_landmarks, how many"):
        KernelSVD(kernel="rbf", landmarks="learned").fit(X)
