"""Batches of any cases, and of similar length."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primal_attention.tasks.buckets import bucket_batches, shuffled_batches

LENGTHS = np.random.default_rng(0).integers(1, 1000, 500)


def cost(batches, lengths):
    """Positions once padded."""
    return sum(len(b) * max(lengths[i] for i in b) for b in batches)


@given(
    cases=st.integers(0, 60),
    size=st.integers(1, 9),
    pool=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_every_case_exactly_once(cases, size, pool, seed):
    lengths = np.random.default_rng(1).integers(1, 9, cases)
    batches = bucket_batches(lengths, size, seed, 1, pool=pool)
    assert sorted(i for b in batches for i in b) == list(range(cases))
    assert sum(len(b) != size for b in batches) <= 1
    assert len(batches) == -(-cases // size)


def test_seed_and_epoch_decide_alone():
    first = bucket_batches(LENGTHS, 8, 3, 2)
    assert bucket_batches(torch.from_numpy(LENGTHS), 8, 3, 2) == first
    assert bucket_batches(LENGTHS, 8, 3, 3) != first
    assert bucket_batches(LENGTHS, 8, 4, 2) != first


def test_little_padding_and_no_order():
    bucketed = bucket_batches(LENGTHS, 8, 0, 1)
    anything = bucket_batches(LENGTHS, 8, 0, 1, pool=1)
    assert cost(bucketed, LENGTHS) < 1.1 * LENGTHS.sum()
    assert cost(anything, LENGTHS) > 1.5 * LENGTHS.sum()
    means = [np.mean(LENGTHS[b]) for b in bucketed]  # short and long ones take turns
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.3


def test_same_length_is_a_plain_shuffle():
    batches = bucket_batches(np.full(40, 7), 4, 0, 1)
    assert sorted(i for b in batches for i in b) == list(range(40))
    assert any(b != sorted(b) for b in batches)


@pytest.mark.parametrize("name", ["batch_size", "pool"])
def test_wrong_sizes(name):
    sizes = {"batch_size": 4, "pool": 4} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0; expected an integer of at least 1"):
        bucket_batches([1, 2], sizes["batch_size"], 0, 1, pool=sizes["pool"])


def test_batches_cover_every_case_once():
    for cases, size in itertools.product([1, 5, 12], [1, 4, 12, 50]):
        found = shuffled_batches(cases, size, seed=3, number=2)
        assert sorted(itertools.chain(*found)) == list(range(cases))
        assert all(len(batch) == size for batch in found[:-1])


def test_batches_depend_on_seed_and_pass():
    first = shuffled_batches(50, 7, seed=0, number=1)
    assert shuffled_batches(50, 7, seed=0, number=1) == first
    assert shuffled_batches(50, 7, seed=0, number=2) != first
    assert shuffled_batches(50, 7, seed=1, number=1) != first
