"""A plain loop of steps: what goes wrong ends it at once."""

import math

import pytest
import torch
from torch import nn

from primal_attention.train.estimator.alone import JUDGED, Steps


@pytest.mark.parametrize(
    ("what", "step"), [("loss", 3), ("gradient", 2), ("loss of held-out cases", JUDGED - 1)]
)
def test_it_ends_in_the_step_that_is_not_finite(what, step):
    asked = []

    def loss(model, chosen):
        asked.append(len(asked))
        (weight,) = model.parameters()
        wrong = len(asked) == step + 1
        if what == "gradient" and wrong:
            return (weight - weight).abs().sqrt().sum()  # 0, and its gradient is NaN
        return weight.square().sum() * (math.nan if what == "loss" and wrong else 1.0)

    with pytest.raises(
        FloatingPointError,
        match=rf"the {what} is nan in step {step + 1} of 100; expected a lower lr than 0\.1",
    ):
        Steps(100, lr=0.1).run(lambda: nn.Linear(2, 1, bias=False), loss, lambda model: math.nan)
    assert len(asked) == step + 1


def test_it_leaves_the_generators_as_they_were():
    before = torch.get_rng_state()
    model, history = Steps(3, lr=0.1).run(
        lambda: nn.Linear(2, 1, bias=False), lambda model, _: model.weight.square().sum()
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert len(history) == 3
    assert history[2] < history[0]
    assert not model.training
