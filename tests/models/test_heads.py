"""Heads against their formulas, on whole and on padded batches."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention.models.heads import AttentionHead, FlattenHead, MeanHead, MLPHead
from primal_attention.models.packing import pack

MASK = torch.tensor([[False, False, True, True], [False] * 3 + [True], [True] * 4])
LENGTHS = [2, 3, 0]


@pytest.fixture
def x():
    return torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["packed", "padded"])
def form(request, padded):
    if request.param == "padded":
        padded()


def flatten_head(activation, dropout=0.0):
    torch.manual_seed(1)
    return FlattenHead(
        5, 2, max_length=6, activation=activation, dropout=dropout, dtype=torch.float64
    )


@pytest.mark.usefixtures("form")
def test_mean(x):
    head = MeanHead(5, 2, dtype=torch.float64)
    logits = head(*pack(x, MASK))
    for i, n in enumerate(LENGTHS):
        mean = x[i, :n].mean(0) if n else torch.zeros(5, dtype=torch.float64)
        assert_close(logits[i], head.output(mean))


def test_mean_without_padding(x):
    head = MeanHead(5, 2, dtype=torch.float64)
    assert_close(head(*pack(x, None)), head.output(x.mean(1)))


@pytest.mark.usefixtures("form")
def test_mlp(x):
    head = MLPHead(5, 2, hidden=7, dtype=torch.float64)
    logits = head(*pack(x, MASK))
    for i, n in enumerate(LENGTHS):
        mean = x[i, :n].mean(0) if n else torch.zeros(5, dtype=torch.float64)
        assert_close(logits[i], head.output(head.hidden(mean).relu()))


def test_mlp_of_pairs(x):
    head = MLPHead(5, 2, hidden=7, pairs=True, dtype=torch.float64)
    rows = torch.cat([x, x.flip(1, 2)[:1]])  # two pairs
    a, b = rows.mean(1)[0::2], rows.mean(1)[1::2]
    features = torch.cat([a, b, a * b, a - b], 1)
    assert_close(head(*pack(rows, None)), head.output(head.hidden(features).relu()))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU()], ids=["gelu", "relu"])
def test_flatten(x, activation):
    head = flatten_head(activation)
    logits = head(*pack(x, MASK))
    for i, n in enumerate(LENGTHS):
        whole = torch.zeros(6, 5, dtype=torch.float64)
        whole[:n] = activation(x[i, :n])
        assert_close(logits[i], head.output(whole.flatten()))


def test_flatten_of_a_shorter_batch(x):
    head = flatten_head(nn.GELU())
    whole = torch.cat([nn.functional.gelu(x), x.new_zeros(3, 2, 5)], 1)
    assert_close(head(*pack(x, None)), head.output(whole.flatten(1)))


def test_flatten_makes_no_zeros(x):
    """Rows beyond the batch are not formed: the gradient of their weights is zero anyway."""
    head = flatten_head(nn.GELU())
    head(*pack(x, MASK)).sum().backward()
    assert head.output.weight.grad[:, 15:].abs().sum() == 0
    assert head.output.weight.grad[:, :15].abs().min() > 0


def test_flatten_drops_in_training(x):
    head = flatten_head(nn.GELU(), dropout=0.5)
    assert not torch.equal(head(*pack(x, None)), head(*pack(x, None)))
    head.eval()
    assert torch.equal(head(*pack(x, None)), head(*pack(x, None)))


def test_gated_pooling_by_hand():
    torch.manual_seed(0)
    head = AttentionHead(4, 2).double()
    rows = torch.randn(2, 3, 4, dtype=torch.float64)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    packed, packing = pack(rows, padding)
    weights = head.weights(packed, packing)
    for i, n in enumerate((2, 3)):
        h = rows[i, :n]
        gated = torch.tanh(head.content(h)) * torch.sigmoid(head.gate(h))
        a = (gated @ head.score.weight[0]).softmax(0)
        assert_close(weights[i, :n], a)
        assert_close(head(packed, packing)[i], head.output(a @ h))
    assert weights[0, 2] == 0
    empty, nothing = pack(rows, torch.ones(2, 3, dtype=torch.bool))
    assert_close(head(empty, nothing), head.output.bias.expand(2, 2))
