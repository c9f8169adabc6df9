"""Episodes in memory and the pieces that are cut from them, against plain loops."""

import dataclasses

import numpy as np
import pytest
import torch

from primal_attention.tasks import DataError
from primal_attention.tasks.rl.trajectories import Contexts


@pytest.mark.parametrize("ends", ["tut", "tu.", "uuu"])
def test_episodes_end_at_final_states_at_cuts_and_at_the_end(make_trajectories, ends):
    data = make_trajectories(ends=ends)
    assert data.lengths.tolist() == [5, 3, 4]
    assert data.starts.tolist() == [0, 5, 8]
    assert data.timesteps.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]


def test_returns_to_go_against_a_loop(make_trajectories):
    data = make_trajectories()
    expected = []
    for start, length in zip(data.starts, data.lengths, strict=True):
        rewards = data.rewards[start : start + length].astype(np.float64)
        expected += [rewards[i:].sum() for i in range(length)]
    np.testing.assert_allclose(data.returns_to_go, expected, rtol=1e-5)
    np.testing.assert_allclose(data.returns, data.returns_to_go[data.starts], rtol=1e-5)


def test_a_state_that_never_changes_is_not_blown_up(make_trajectories):
    data = make_trajectories()
    data.observations[:, 1] = 7.0
    data.observations[:, 2] = 1e-6 * np.arange(len(data.observations))
    assert data.state_mean[1] == 7.0
    assert data.state_std[1] == 1.0  # who knows where it goes in the environment
    assert data.state_std[2] == pytest.approx(1e-3)
    np.testing.assert_allclose(data.state_std[0], data.observations[:, 0].std(), rtol=1e-5)


def test_subset_keeps_episodes_apart(make_trajectories):
    data = make_trajectories(ends="tu.")
    part = data.subset([2, 0])
    assert part.lengths.tolist() == [4, 5]
    np.testing.assert_array_equal(part.observations[:4], data.observations[8:])
    np.testing.assert_array_equal(part.terminals.nonzero()[0], [8])
    assert part.fingerprint() != data.fingerprint()
    assert data.subset([0, 1, 2]).returns.tolist() == data.returns.tolist()


@pytest.mark.parametrize("context", [1, 3, 20])
def test_pieces_against_a_loop(make_trajectories, context):
    data = make_trajectories()
    batch = Contexts(data, context).__getitems__(range(data.steps))
    for i in range(data.steps):
        first = max(i - data.timesteps[i], i - context + 1)
        steps = i - first + 1
        valid = slice(context - steps, None)
        assert batch.padding[i].tolist() == [True] * (context - steps) + [False] * steps
        own = slice(first, i + 1)
        np.testing.assert_array_equal(batch.states[i, valid], data.observations[own])
        np.testing.assert_array_equal(batch.actions[i, valid], data.actions[own])
        np.testing.assert_array_equal(batch.returns[i, valid, 0], data.returns_to_go[own])
        np.testing.assert_array_equal(batch.timesteps[i, valid], data.timesteps[own])
    assert (batch.states[batch.padding] == 0).all()
    assert batch.timesteps.dtype == torch.int64


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("rewards", lambda a: a[:-1], "rewards has 11 steps; expected 12"),
        ("actions", lambda a: a[:, 0], r"actions has shape \(12,\); expected 2 dimensions"),
        ("observations", lambda a: a[:0], "expected 0, as many as observations"),
    ],
)
def test_fields_that_do_not_fit(make_trajectories, field, change, message):
    data = make_trajectories()
    with pytest.raises(DataError, match=message):
        dataclasses.replace(data, **{field: change(getattr(data, field))})


@pytest.mark.parametrize("field", ["observations", "actions", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite(make_trajectories, field, value):
    data = make_trajectories()
    array = getattr(data, field).copy()
    array[4:6] = value
    with pytest.raises(DataError, match=rf"{field} is not finite at step 4 \(2 such steps\)"):
        dataclasses.replace(data, **{field: array})
