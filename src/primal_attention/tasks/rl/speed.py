"""How many actions a second an agent takes, once it has seen some steps."""

from __future__ import annotations

import time

import torch

from .agents import WindowAgent


def decisions_per_second(
    agent: WindowAgent, *, decisions: int, after: int | None = None, episodes: int = 1
) -> float:
    """The pace of an agent in random states over `decisions` actions, after some steps: as many as
    its context has, unless told. For an agent that starts its memory anew, `decisions` should be
    half its context, so that one new start is among them.
    """
    if decisions < 1:
        raise ValueError(f"decisions is {decisions}; expected an integer of at least 1")
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(16, episodes, agent.model.state_dim, generator=generator)
    agent.reset(episodes, 1.0)
    agent.fill(agent.context if after is None else after, states)
    began = time.perf_counter()
    for t in range(decisions):
        agent.act(states[t % len(states)], torch.zeros(episodes))
    return episodes * decisions / (time.perf_counter() - began)
