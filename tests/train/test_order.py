"""Shares, random numbers and learning rates are functions of their arguments alone."""

import itertools

import pytest
import torch

from primal_attention.train import RunConfig
from primal_attention.train.order import from_step, learning_rate, seed_random, share


def test_steps_go_through_pass_after_pass():
    def one_pass(number):
        return [[number, i] for i in range(3)]

    everything = [[number, i] for number in (1, 2, 3, 4) for i in range(3)]
    for first, last in itertools.combinations_with_replacement(range(13), 2):
        assert list(from_step(one_pass, 3, first, last)) == everything[first:last]


def test_linear_schedule():
    config = RunConfig(task="x", lr=0.5, schedule="linear", warmup_steps=2)
    rates = [learning_rate(config, step, 6) for step in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.5, 0.375, 0.25, 0.125])


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("cases", [1, 2, 8, 11])
def test_shares_are_a_partition(cases, world):
    indices = list(range(100, 100 + cases))
    shares = [share(indices, rank, world) for rank in range(world)]
    assert list(itertools.chain(*shares)) == indices
    sizes = [len(part) for part in shares]
    assert max(sizes) - min(sizes) <= 1


def test_random_numbers_by_key():
    def draw(*key):
        seed_random(torch.device("cpu"), *key)
        return torch.rand(4)

    with torch.random.fork_rng():
        assert torch.equal(draw(0, 1, 0), draw(0, 1, 0))
        different = [draw(0, 1, 0), draw(1, 0, 0), draw(0, 0, 1), draw(0, 10), draw(0, "weights")]
        for one, other in itertools.combinations(different, 2):
            assert not torch.equal(one, other)


def test_learning_rates():
    constant = RunConfig(task="x", lr=0.5, warmup_steps=4)
    rates = [learning_rate(constant, step, 10) for step in range(10)]
    assert rates == [0.125, 0.25, 0.375] + [0.5] * 7
    cosine = RunConfig(task="x", lr=0.5, schedule="cosine", warmup_steps=2)
    rates = [learning_rate(cosine, step, 10) for step in range(11)]
    assert rates[:3] == [0.25, 0.5, 0.5]
    assert rates[6] == pytest.approx(0.25)
    assert rates[10] == pytest.approx(0.0)
    assert all(a >= b for a, b in itertools.pairwise(rates[2:]))
