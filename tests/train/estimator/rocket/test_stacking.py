"""The weights of the parts."""

import pytest
import torch
from torch.nn.functional import one_hot

pytest.importorskip("sklearn")

from primal_attention.train.estimator.rocket.stacking import class_weights, value_weights

LABELS = torch.arange(60) % 3


def noisy_scores(noise, seed):
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * one_hot(LABELS, 3) - 1.0 + noise * torch.randn(60, 3, generator=generator).double()


def test_a_better_part_weighs_more():
    weights = class_weights(torch.stack([noisy_scores(1.0, 0), noisy_scores(3.0, 1)]), LABELS)
    assert weights[0] > 2 * weights[1] > 0


def test_a_part_that_misleads_has_nearly_no_weight():
    weights = class_weights(torch.stack([noisy_scores(1.0, 0), -noisy_scores(1.0, 1)]), LABELS)
    assert 0 < weights[1] < 0.2 * weights[0]


def test_the_temperature_is_that_of_the_least_cross_entropy():
    scores = noisy_scores(2.0, 0)[None]
    (found,) = class_weights(scores, LABELS)
    losses = [
        torch.nn.functional.cross_entropy(found * factor * scores[0], LABELS)
        for factor in (0.8, 1.0, 1.25)
    ]
    assert losses[1] < min(losses[0], losses[2])


def test_probabilities_are_finite_if_no_case_is_wrong():
    scores = noisy_scores(0.0, 0)[None]
    probabilities = (class_weights(scores, LABELS) * scores[0]).softmax(1)
    assert 0.9 < probabilities.max() < 1 - 1e-3


def test_values_are_weighed_by_least_squares():
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(2, 500, 1, generator=generator, dtype=torch.float64)
    weights = value_weights(parts, 0.5 * parts[0] + 0.3 * parts[1])
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.3]).double(), rtol=0.02, atol=0)
