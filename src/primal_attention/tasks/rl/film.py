"""One episode to look at: what happened in it, or a moving picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ...runs.files import write_bytes
from .agents import WindowAgent
from .environments import Environment, make_environment
from .extra import need
from .trajectories import Floats


class Episode(NamedTuple):
    """The steps of an episode."""

    states: Floats  # (T, state_dim), before the action
    rewards: Floats  # (T,)
    target: float  # the return that was asked for


def play(
    agent: WindowAgent, environment: Environment, *, seed: int = 0, target: float | None = None
) -> Episode:
    """Let an agent play one episode."""
    wanted = environment.target if target is None else target
    with closing(make_environment(environment)) as env:
        states, rewards = zip(*_steps(agent, env, seed, wanted), strict=True)
    return Episode(np.array(states, np.float32), np.array(rewards, np.float32), wanted)


def film(
    agent: WindowAgent,
    environment: Environment,
    path: Path | str,
    *,
    seed: int = 0,
    steps: int = 300,
    every: int = 3,
    target: float | None = None,
) -> Path | None:
    """Write every third frame of the first steps of an episode as a GIF; None where there is no
    renderer (set MUJOCO_GL to egl or osmesa on a machine without a screen)."""
    wanted = environment.target if target is None else target
    screen = {"render_mode": "rgb_array", "width": 240, "height": 240}
    frames: list[Any] = []
    with closing(make_environment(environment, **screen)) as env:
        for step, _ in zip(range(steps), _steps(agent, env, seed, wanted), strict=False):
            if step == 0 and not _renders(env):
                return None
            if step % every == 0:
                frames.append(env.render())
    image = need("PIL.Image", "moving pictures")
    pictures = [image.fromarray(frame).quantize(64) for frame in frames]
    content = io.BytesIO()
    pictures[0].save(content, "GIF", save_all=True, append_images=pictures[1:], duration=40, loop=0)
    write_bytes(Path(path), content.getvalue())
    return Path(path)


def _steps(agent: WindowAgent, env: Any, seed: int, target: float) -> Iterator[tuple[Any, float]]:
    """The states and rewards of an episode."""
    state, _ = env.reset(seed=seed)
    agent.reset(1, target)
    reward, over = None, False
    while not over:
        action = agent.act(torch.from_numpy(state).unsqueeze(0), reward)
        after, gained, ended, cut, _ = env.step(action[0].cpu().numpy().astype(np.float32))
        yield state, float(gained)
        state, reward, over = after, torch.tensor([gained]), ended or cut


def _renders(env: Any) -> bool:
    try:
        return env.render() is not None
    except Exception:  # drivers fail in many ways, with types of their own
        return False
