"""Small recorded episodes."""

import numpy as np
import pytest

from primal_attention.tasks.rl.trajectories import Trajectories


def draw(lengths=(5, 3, 4), *, ends="tut", state_dim=3, action_dim=2, seed=0):
    """Episodes of given lengths that end as said: t = final state, u = cut, . = without a mark."""
    rng = np.random.default_rng(seed)
    steps = sum(lengths)
    last = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(steps, bool), np.zeros(steps, bool)
    for at, end in zip(last, ends, strict=True):
        terminals[at], timeouts[at] = end == "t", end == "u"
    return Trajectories(
        "small",
        rng.normal(size=(steps, state_dim)).astype(np.float32),
        rng.uniform(-1, 1, (steps, action_dim)).astype(np.float32),
        rng.normal(size=steps).astype(np.float32),
        terminals,
        timeouts,
    )


@pytest.fixture(scope="session")
def make_trajectories():
    return draw
