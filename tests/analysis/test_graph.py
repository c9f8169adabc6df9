"""The graph of an attention kernel: known structures, dense truth, equivariance."""

import numpy as np
import pytest
import torch

import primal_attention as pa
from primal_attention.analysis.graph import graph_of, last_kernels, skeleton
from primal_attention.models import SequenceClassifier
from primal_attention.theory.factors import DenseKernel, KernelFactors


def correlation(mixing):
    c = mixing @ mixing.T
    scale = np.sqrt(np.diag(c))
    return c / scale[:, None] / scale


def linear_model(rng, nodes=8):
    """x = G x + noise, so that x = (I - G)^{-1} noise."""
    g = np.zeros((nodes, nodes))
    for i in range(nodes):
        for j in range(i):
            if rng.random() < 0.3:
                g[i, j] = rng.uniform(0.5, 1.5) * rng.choice([-1, 1])
    return g, np.linalg.inv(np.eye(nodes) - g)


def test_skeletons_of_linear_models_are_found():
    rng, right, wrong = np.random.default_rng(0), 0, 0
    for _ in range(20):
        g, mixing = linear_model(rng)
        edges, _ = skeleton(correlation(mixing), 1000, 0.01)
        true = (g != 0) | (g != 0).T
        upper = np.triu_indices(8, 1)
        right += int((edges & true)[upper].sum())
        wrong += int((edges ^ true)[upper].sum())
    assert 2 * right / (2 * right + wrong) >= 0.89


def test_a_chain_and_a_collider():
    chain = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 1]])  # 0 -> 1 -> 2
    edges, _ = skeleton(correlation(chain), 500, 0.01)
    assert edges.tolist() == [[False, True, False], [True, False, True], [False, True, False]]
    collider = np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 1]])  # 0 -> 2 <- 1
    edges, _ = skeleton(correlation(collider), 500, 0.01)
    assert edges.tolist() == [[False, False, True], [False, False, True], [True, True, False]]


SINGLES = tuple((i,) for i in range(6))


def test_blocks_that_share_nothing_have_no_edge():
    """Neither among rows nor among columns."""
    torch.manual_seed(0)
    matrix = torch.zeros(6, 6, dtype=torch.float64)
    matrix[:3, :3], matrix[3:, 3:] = torch.rand(3, 3).double(), torch.rand(3, 3).double()
    for target in (None, 0):
        found = graph_of([DenseKernel(matrix)], SINGLES, samples=200, target=target)
        assert not (found.edges & (np.abs(found.correlation) < 1e-9)).any()
        assert not found.edges[:3, 3:6].any()


@pytest.mark.parametrize("target", [None, 2])
def test_factors_give_the_dense_graph(target):
    torch.manual_seed(0)
    a, b = torch.rand(9, 5, dtype=torch.float64), torch.rand(9, 5, dtype=torch.float64)
    a[7], b[7] = 0.0, 0.0  # padding
    units = ((0, 1), (2,), (3, 4, 5), (6,), (8,))
    thin, full = (
        graph_of([one, one], units, samples=60, target=target)
        for one in (KernelFactors(a, b), DenseKernel(a @ b.mT))
    )
    np.testing.assert_allclose(thin.correlation, full.correlation, atol=1e-10)
    assert (thin.edges == full.edges).all()
    dense = (a @ b.mT).numpy()
    if target is None:
        seen = np.ones(9)
        seen[7] = 0
        nodes = np.stack([*(dense[:, list(unit)].sum(1) for unit in units), seen])
    else:
        nodes = np.stack([*(dense[list(unit)].sum(0) for unit in units), dense[target]])
    c = nodes @ nodes.T
    expected = c / np.sqrt(np.outer(np.diag(c), np.diag(c)))
    np.testing.assert_allclose(thin.correlation, expected, atol=1e-4)  # but for the ridge


def test_it_does_not_depend_on_the_order_of_the_units():
    torch.manual_seed(1)
    kernel = DenseKernel(torch.rand(6, 6, dtype=torch.float64) ** 4)
    order = np.array([4, 2, 0, 1, 5, 3])
    one = graph_of([kernel], SINGLES, samples=64)
    two = graph_of([kernel], tuple((int(i),) for i in order), samples=64)
    moved = np.append(order, 6)
    assert (two.edges == one.edges[np.ix_(moved, moved)]).all()
    np.testing.assert_allclose(two.strength, one.strength[np.ix_(moved, moved)], atol=1e-9)
    np.testing.assert_array_equal(two.distances()[:-1], one.distances()[order])


def test_of_a_model():
    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=2, vocabulary=9, max_length=20, attention=("softmax", "primal"), width=16, heads=2,
        feedforward=16,
    ).double()  # fmt: skip
    tokens = torch.randint(9, (1, 12))
    found = pa.attention_graph(model, tokens)
    assert found.samples == 16  # two heads of width 8
    assert len(found.units) == 9  # half of the samples, and the target
    assert found.units[found.target] == ()
    parts = pa.attention_graph(model, tokens, units=4, samples=32, head=1, layer=0)
    assert [len(unit) for unit in parts.units] == [3, 3, 3, 3, 0]
    kernels, width = last_kernels(model, tokens)
    assert isinstance(kernels[0], KernelFactors)
    assert (len(kernels), width) == (2, 16)
    for wrong, message in (
        ({"layer": 2}, "layer is 2"), ({"head": 5}, "head is 5"), ({"units": 13}, "units is 13"),
        ({"samples": 4}, "samples is 4"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            pa.attention_graph(model, tokens, **wrong)
    with pytest.raises(ValueError, match="2 inputs"):
        pa.attention_graph(model, tokens.expand(2, -1))
