"""Positive features of kernels of the distance: unbiased, bounded, and in the layers."""

import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention import PrimalAttention
from primal_attention.theory.features import GaussianFeatures, InverseQuadraticFeatures

KERNELS = [
    (GaussianFeatures, lambda distance, gamma: math.exp(-gamma * distance)),
    (InverseQuadraticFeatures, lambda distance, gamma: 1.0 / (1.0 + gamma * distance)),
]


@pytest.mark.parametrize(("kind", "kernel"), KERNELS)
def test_the_estimate_is_unbiased(kind, kernel):
    q = torch.tensor([0.5, -0.3, 0.2], dtype=torch.float64)
    k = torch.tensor([0.1, 0.4, -0.2], dtype=torch.float64)
    draws = []
    for seed in range(300):
        phi = kind(3, 16, gamma=0.7, seed=seed, dtype=torch.float64)
        draws.append(float(phi(q) @ phi(k)))
    found = torch.tensor(draws, dtype=torch.float64)
    expected = kernel(float((q - k).square().sum()), 0.7)
    assert abs(float(found.mean()) - expected) < 4 * float(found.std()) / 300**0.5
    assert float(found.std()) < 0.5


@pytest.mark.parametrize(("kind", "_"), KERNELS)
def test_features_are_positive_and_bounded(kind, _):
    phi = kind(3, 8, dtype=torch.float64)
    features = phi(30.0 * torch.randn(50, 3, dtype=torch.float64))
    assert (features >= 0).all()
    bound = (phi.directions.square().sum(-1) / 4).exp() / 8**0.5
    assert (features <= bound * (1 + 1e-12)).all()  # no key is large because it is far away


@pytest.mark.parametrize("name", ["gaussian", "inverse_quadratic"])
def test_rows_of_a_layer_are_divided_by_their_sums(name):
    """With tied weights: a value that is one everywhere stays one."""
    torch.manual_seed(0)
    layer = PrimalAttention(8, 2, rank=2, feature_map=name, dtype=torch.float64).eval()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        x[..., 0] = 1.0
        layer.dual_weight.zero_()
        layer.dual_weight[:, 0] = 1.0  # every dual variable is 1
        scores = layer._scores_by(layer._features(x, None, layer.maps(x.dtype)), layer.summarise(x))
    assert_close(scores, torch.ones_like(scores))


def test_an_exact_match_stands_out():
    """Among 1,000 instances the one that is alike gets more than any softmax of kappa could."""
    torch.manual_seed(0)
    phi = GaussianFeatures(2, 4096, gamma=2.0, dtype=torch.float64)
    keys = torch.rand(1000, 2, dtype=torch.float64) + 1.0  # none near the match at zero
    keys[0] = 0.0
    weights = phi(keys[:1]) @ phi(keys).mT
    assert (weights / weights.sum())[0, 0] > 0.03 > 10 * math.e / (999 + math.e)


def test_what_a_map_says():
    assert "gamma=0.25" in repr(GaussianFeatures(4))
    with pytest.raises(ValueError, match="gamma is 0; expected a positive number"):
        GaussianFeatures(4, gamma=0)
    made = InverseQuadraticFeatures(4, device="meta").to_empty(device="cpu")
    made.reset_parameters()
    assert_close(made.widths, InverseQuadraticFeatures(4).widths)
