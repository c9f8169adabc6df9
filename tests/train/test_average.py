"""Averages of the weights over the steps."""

import torch
from torch import nn
from torch.testing import assert_close

from primal_attention.train.average import Average, in_use


def test_average_is_its_formula():
    model = nn.BatchNorm1d(3)  # a module with an integer in its state
    average = Average(model, 0.75)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for step in range(5):
        with torch.no_grad():
            model.weight.add_(step + 1.0)
            model.num_batches_tracked.add_(2)
        average.update(model)
        expected["weight"] = 0.75 * expected["weight"] + 0.25 * model.weight
    assert_close(average.weights["weight"], expected["weight"])
    assert average.weights["num_batches_tracked"] == 10


def test_the_model_has_the_average_for_a_while():
    model = nn.Linear(2, 2)
    average = Average(model, 0.5)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    average.update(model)
    with in_use(average, model):
        assert_close(model.weight, before + 0.5)
    assert_close(model.weight, before + 1.0)
    with in_use(None, model):
        assert_close(model.weight, before + 1.0)
