"""Outputs under draws: of the readout, and of dropout."""

import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.models import SequenceClassifier


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = SequenceClassifier(
        classes=3, channels=2, max_length=9, width=8, heads=2, feedforward=16, dropout=0.3
    ).double()
    return pa.variational_(made)


def test_draws_of_the_readout(model):
    x = torch.randn(4, 9, 2, dtype=torch.float64)
    state = torch.get_rng_state()
    found = pa.draws(model, x, 5, seed=1)
    assert found.shape == (5, 4, 3)
    assert found.std(0).min() > 0
    assert torch.equal(pa.draws(model, x, 5, seed=1), found)
    torch.testing.assert_close(pa.draws(model, x[1:2], 5, seed=1), found[:, 1:2])  # any company
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    padded = torch.cat([x, torch.full((4, 0, 2), 7.0).double()], 1)
    torch.testing.assert_close(pa.draws(model, (padded, None), 5, seed=1), found)


def test_draws_of_dropout(model):
    x = torch.randn(2, 9, 2, dtype=torch.float64)
    found = pa.draws(model, x, 3, kind="dropout")
    assert found.std(0).min() > 0
    assert torch.equal(pa.draws(model, x, 3, kind="dropout"), found)


def test_what_is_refused(model):
    with pytest.raises(ValueError, match="no variational readout"):
        pa.draws(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="no dropout above 0"):
        pa.draws(nn.Linear(2, 2), torch.zeros(1, 2), kind="dropout")
    with pytest.raises(ValueError, match="count is 0"):
        pa.draws(model, torch.zeros(1, 9, 2), 0)
    with pytest.raises(ValueError, match="2 calls"):
        pa.draws(model, [torch.zeros(1, 9, 2)] * 2)
