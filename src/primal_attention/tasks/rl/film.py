"""An episode as a moving picture."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch

from .agents import WindowAgent
from .environments import Environment
from .extra import need


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
    frames = _frames(agent, environment, seed, steps, every, target)
    if not frames:
        return None
    image = need("PIL.Image", "moving pictures")
    pictures = [image.fromarray(frame).quantize(64) for frame in frames]
    content = io.BytesIO()
    pictures[0].save(content, "GIF", save_all=True, append_images=pictures[1:], duration=40, loop=0)
    path = Path(path)
    beside = path.with_name(f".tmp-{path.name}")
    beside.write_bytes(content.getvalue())
    os.replace(beside, path)
    return path


def _frames(
    agent: WindowAgent,
    environment: Environment,
    seed: int,
    steps: int,
    every: int,
    target: float | None,
) -> list[Any]:
    need("mujoco", "environments")
    env = need("gymnasium", "environments").make(
        environment.id, render_mode="rgb_array", width=240, height=240
    )
    frames: list[Any] = []
    try:
        state, _ = env.reset(seed=seed)
        if not _renders(env):
            return []
        agent.reset(1, environment.target if target is None else target)
        reward = None
        for step in range(min(steps, environment.horizon)):
            if step % every == 0:
                frames.append(env.render())
            action = agent.act(torch.from_numpy(state).unsqueeze(0), reward)
            state, gained, ended, cut, _ = env.step(action[0].cpu().numpy().astype("float32"))
            reward = torch.tensor([gained])
            if ended or cut:
                break
    finally:
        env.close()
    return frames


def _renders(env: Any) -> bool:
    try:
        return env.render() is not None
    except Exception:  # drivers fail in many ways, with types of their own
        return False
