"""Transport: maps whose gap is known, an assignment by brute force, and what attentions do."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.analysis.optimal_transport import (
    efficiency,
    layer_transport,
    moved_rows,
    squared_distance,
)
from primal_attention.models import SequenceClassifier

X = np.random.default_rng(0).normal(size=(60, 2))
ROTATION = np.array([[np.cos(2.2), -np.sin(2.2)], [np.sin(2.2), np.cos(2.2)]])


def gap(y):
    return layer_transport("map", X, y).gap


def test_maps_that_do_not_cross_have_no_gap():
    assert gap(X + np.array([3.0, -7.0])) == pytest.approx(0.0, abs=1e-10)
    assert gap(X @ np.array([[2.0, 0.5], [0.5, 1.0]])) == pytest.approx(0.0, abs=1e-10)
    assert gap(X) == 0.0
    assert layer_transport("map", X, X).optimality == 1.0


def test_rotations_and_permutations_have_one():
    assert gap(X @ ROTATION.T) > 1.0
    found = layer_transport("map", X, X[np.random.default_rng(1).permutation(60)])
    assert found.gap > 1.0
    assert found.distance == pytest.approx(0.0, abs=1e-7)
    assert found.optimality == pytest.approx(0.0, abs=1e-12)


def test_the_distance_is_the_cheapest_assignment():
    a, b = X[:5], X[5:10] + 1.0
    costs = [np.square(a - b[list(order)]).sum(1).mean() for order in permutations(range(5))]
    assert squared_distance(a, b) == pytest.approx(min(costs))
    assert squared_distance(b, a) == pytest.approx(min(costs))


def test_a_straight_path_is_efficient():
    straight = [X + step * np.array([1.0, 2.0]) for step in range(4)]
    assert efficiency(straight) == pytest.approx(1.0)
    assert efficiency([*straight, X]) == pytest.approx(0.0, abs=1e-7)
    assert efficiency([X, X]) == 1.0


@pytest.mark.parametrize("attention", ["softmax", "primal", "sinkhorn"])
def test_of_a_model_without_its_padding(attention):
    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=2, channels=3, max_length=9, attention=(attention, "primal"), width=8, heads=2,
        feedforward=8,
    ).double()  # fmt: skip
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    padding = torch.arange(9) >= torch.tensor([9, 5])[:, None]
    found = pa.transport(model, (x, padding))
    assert [one.rows for one in found.layers] == [14, 14]
    alone = pa.transport(model, [x[:1], x[1:, :5]])
    for one, two in zip(found.layers, alone.layers, strict=True):
        assert one.distance == pytest.approx(two.distance)
        assert one.gap == pytest.approx(two.gap)
        assert one.moved**2 == pytest.approx(one.distance**2 + one.gap)
        assert 0 < one.optimality <= 1
    assert "Monge gap" in str(found)
    few, _ = moved_rows(model, (x, padding), most=6)
    again, _ = moved_rows(model, (x, padding), most=6)
    for (a, b), (c, d) in zip(few.values(), again.values(), strict=True):
        assert len(a) == 6
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)


def test_what_is_refused():
    with pytest.raises(ValueError, match="no attention"):
        pa.transport(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="most is 1"):
        pa.transport(pa.PrimalAttention(8, 2), torch.zeros(1, 3, 8), most=1)
    with pytest.raises(ValueError, match=r"expected one \(n, d\)"):
        squared_distance(X, X[:3])
    with pytest.raises(ValueError, match="not finite"):
        squared_distance(X, X * np.nan)
    with pytest.raises(ValueError, match="1 clouds"):
        efficiency([X])
