"""The fused RAdam makes the steps of torch's own."""

import copy

import pytest
import torch

from primal_attention.train.optim import OPTIMIZERS, RAdam, make_optimizer


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))
        for shape in ((7, 3), (5,), (2, 2, 2))
    ]


def descend(optimizer, values, steps, start=0):
    for i in range(start, start + steps):
        generator = torch.Generator().manual_seed(i)
        for value in values:
            size = 10.0 ** (i % 5 - 2)  # gradients of very different sizes
            value.grad = size * torch.randn(value.shape, generator=generator, dtype=value.dtype)
        optimizer.step()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.9)])
@pytest.mark.parametrize("steps", [1, 5, 6, 7, 40])  # at beta2 = 0.999 step 6 is the first adaptive
def test_radam_is_torchs(steps, betas, weight_decay):
    ours, theirs = parameters(), parameters()
    options = {"lr": 1e-2, "betas": betas, "weight_decay": weight_decay}
    descend(RAdam(ours, **options), ours, steps)
    descend(torch.optim.RAdam(theirs, **options), theirs, steps)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_state_round_trip_and_schedule():
    straight, broken = parameters(), parameters()
    one = RAdam(straight, lr=1e-2)
    descend(one, straight, 12)
    two = RAdam(broken, lr=1e-2)
    descend(two, broken, 4)
    again = RAdam(broken, lr=0.5)
    again.load_state_dict(copy.deepcopy(two.state_dict()))
    assert again.param_groups[0]["lr"] == 1e-2
    assert again.param_groups[0]["eps"] == 1e-8
    descend(again, broken, 8, start=4)
    for a, b in zip(straight, broken, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_by_name(name):
    values = parameters()
    before = [value.detach().clone() for value in values]
    optimizer = make_optimizer(name, values, lr=1e-2)
    descend(optimizer, values, 1)
    assert all(not torch.equal(a, b) for a, b in zip(before, values, strict=True))


def test_unknown_name():
    with pytest.raises(ValueError, match=r"'radan' \(did you mean 'radam'\?\)"):
        make_optimizer("radan", parameters(), lr=1e-3)
