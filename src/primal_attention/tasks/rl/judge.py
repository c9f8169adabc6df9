"""What an agent is worth: the returns that it collects in the real environment."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch

from .agents import WindowAgent
from .environments import Environment, make_environments


@dataclass(frozen=True)
class Evaluation:
    """Episodes of an agent that was asked for `target`. `seconds` is the time of the agent alone,
    `decisions` the number of actions that it took in that time."""

    target: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    scores: tuple[float, ...]  # normalised
    decisions: int
    seconds: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def deviation(self) -> float:
        """The sample standard deviation of the returns over the episodes; 0 for a single one."""
        return statistics.stdev(self.returns) if len(self.returns) > 1 else 0.0

    @property
    def score(self) -> float:
        """The mean normalised score."""
        return statistics.fmean(self.scores)


def evaluate(
    agent: WindowAgent,
    environment: Environment,
    *,
    episodes: int = 10,
    target: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """Let an agent play `episodes` episodes at once; `seed` decides where they begin."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}; expected an integer of at least 1")
    wanted = environment.target if target is None else target
    with closing(make_environments(environment, episodes)) as envs:
        states, _ = envs.reset(seed=[seed * 10_000 + i for i in range(episodes)])
        agent.reset(episodes, wanted)
        playing = np.ones(episodes, dtype=bool)
        totals, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
        rewards, decisions, seconds = None, 0, 0.0
        while playing.any():
            began = time.perf_counter()
            actions = agent.act(torch.from_numpy(states), rewards).float().cpu().numpy()
            seconds += time.perf_counter() - began
            decisions += episodes
            states, gained, ended, cut, _ = envs.step(actions)
            totals += np.where(playing, gained, 0.0)
            lengths += playing
            # an environment that has ended begins anew and plays on until all have; nobody counts
            playing &= ~(ended | cut)
            rewards = torch.from_numpy(gained)
    returns = tuple(totals.tolist())
    return Evaluation(
        target=wanted,
        returns=returns,
        lengths=tuple(lengths.tolist()),
        scores=tuple(environment.score(total) for total in returns),
        decisions=decisions,
        seconds=seconds,
    )


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
