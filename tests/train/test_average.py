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


def test_buffers_are_not_averaged_and_half_precision_moves():
    model = nn.BatchNorm1d(3).bfloat16()
    average = Average(model, 0.999)
    with torch.no_grad():
        model.weight.add_(0.5)
        model.running_mean.fill_(2.0)
    for _ in range(1000):
        average.update(model)
    assert average.for_model(model)["weight"].dtype == torch.bfloat16
    assert_close(average.weights["weight"], torch.full((3,), 1.5 - 0.5 * 0.999**1000))
    assert (average.weights["running_mean"] == 2.0).all()
