"""The class of a made series is in two distant parts together, and in nothing less."""

import numpy as np
import pytest
import torch

from primal_attention.models import SeriesNet
from primal_attention.tasks import get_task, made
from primal_attention.tasks.made import repetition, shapes


def read(x):
    """The shapes of both patterns, by the nearest ones at the begin that fits best."""
    known, found = shapes(), []
    for first in (0, made.LENGTH - made.PATTERN - made.ROOM):
        best = (np.inf, ())
        for begin in range(first, first + made.ROOM + 1):
            slots = x[begin : begin + made.PATTERN].reshape(
                made.SLOTS, 1, made.STEPS, made.CHANNELS
            )
            errors = np.square(slots - known).sum((2, 3))  # (made.SLOTS, made.SHAPES)
            best = min(best, (errors.min(1).sum(), tuple(errors.argmin(1))))
        found.append(best[1])
    return found


def test_the_class_is_whether_the_order_is_the_same():
    found = repetition(60, seed=5)
    assert found.classes == ("other", "repeated")
    for x, label in zip(found.series, found.labels, strict=True):
        first, second = read(x)
        assert sorted(first) == sorted(second)
        assert len(set(first)) == made.SLOTS
        same = [a == b for a, b in zip(first, second, strict=True)]
        assert all(same) if label else not any(same)


def test_the_shapes_differ():
    known = shapes()
    assert known.shape == (made.SHAPES, made.STEPS, made.CHANNELS)
    np.testing.assert_allclose(np.square(known).mean((1, 2)), 1.0)
    apart = np.square(known[:, None] - known[None]).mean((2, 3))
    assert apart[~np.eye(made.SHAPES, dtype=bool)].min() > 0.8  # noise has 0.09


def test_one_pattern_says_nothing():
    """Each shape is as frequent in either class in every slot of either pattern."""
    found = repetition(2000, seed=3)
    for half in (slice(0, made.LENGTH // 2), slice(made.LENGTH // 2, None)):
        means = [
            np.mean([x[half] for x, y in zip(found.series, found.labels, strict=True) if y == c], 0)
            for c in (0, 1)
        ]
        assert np.abs(means[0] - means[1]).max() < 0.2  # deviation 0.045 of each of 384 numbers


def test_convolutions_do_not_reach_from_one_part_to_the_other():
    """Without attention, no token of the net depends on two positions that are APART."""
    torch.manual_seed(0)
    net = SeriesNet(
        classes=2,
        channels=made.CHANNELS,
        max_length=made.LENGTH,
        attention=("none",),
        dtype=torch.float64,
    ).eval()
    tokens = []
    net.encoder.register_forward_hook(lambda module, args, out: tokens.append(out))
    x = torch.randn(1, made.LENGTH, made.CHANNELS, dtype=torch.float64, requires_grad=True)
    net(x)
    middle = tokens[0][0, tokens[0].shape[1] // 2] @ torch.randn(64, dtype=torch.float64)
    (slope,) = torch.autograd.grad(middle, x)
    seen = (slope[0] != 0).any(-1).nonzero()[:, 0]
    assert seen[-1] - seen[0] < made.APART


def test_a_seed_determines_everything():
    task = get_task("made/repetition")
    train, test = (task.load(splits=(split,))[split] for split in ("train", "test"))
    assert (len(train), len(test)) == (2000, 1000)
    assert train.fingerprint() == task.load()["train"].fingerprint() != test.fingerprint()
    assert task.status().complete
    with pytest.raises(ValueError, match="unknown split of made/repetition: 'tset'"):
        task.load(splits=("tset",))
