"""Batches of similar length."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from primal_attention.tasks.buckets import BucketSampler, bucket_batches

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


def test_sampler_goes_on_where_it_was():
    def all_of(sampler):
        return [list(sampler) for _ in range(3)]

    whole = all_of(BucketSampler(LENGTHS, 16, seed=5))
    assert whole[1] == bucket_batches(LENGTHS, 16, 5, 2)
    cut = BucketSampler(LENGTHS, 16, seed=5)
    list(cut)
    epoch = iter(cut)
    done = [next(epoch) for _ in range(7)]
    again = BucketSampler(LENGTHS, 16, seed=5)
    again.load_state_dict(cut.state_dict())
    assert done + list(again) == whole[1]
    assert list(again) == whole[2]
    assert len(again) == len(whole[0])
    with pytest.raises(ValueError, match="the state has seed 5; expected 6"):
        BucketSampler(LENGTHS, 16, seed=6).load_state_dict(cut.state_dict())


def test_sampler_in_a_loader():
    loader = DataLoader(list(range(500)), batch_sampler=BucketSampler(LENGTHS, 16, seed=5))
    assert [b.tolist() for b in loader] == bucket_batches(LENGTHS, 16, 5, 1)


@pytest.mark.parametrize("name", ["batch_size", "pool"])
def test_wrong_sizes(name):
    sizes = {"batch_size": 4, "pool": 4} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0; expected an integer of at least 1"):
        bucket_batches([1, 2], sizes["batch_size"], 0, 1, pool=sizes["pool"])
