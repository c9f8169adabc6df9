"""Policies to record with, trained here: soft actor-critic by stable-baselines3."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...files import replacing
from .environments import Environment
from .extra import need


def train_sac(environment: Environment, folder: Path | str, *, steps: int, seed: int = 0) -> Path:
    """Train for `steps` steps of the environment and write `sac-<environment>.npz`, a policy file
    that `load_policy` reads."""
    if steps < 1:
        raise ValueError(f"steps is {steps}; expected an integer of at least 1")
    need("mujoco", "environments")
    env = need("gymnasium", "environments").make(environment.id)
    sac = need("stable_baselines3", "policies trained here")
    learner = sac.SAC("MlpPolicy", env, seed=seed, device="cpu")
    try:
        learner.learn(steps)
    finally:
        env.close()
    weights = {
        name: tensor.detach().cpu().numpy()
        for name, tensor in learner.policy.state_dict().items()
        if name.startswith("actor.")
    }
    path = Path(folder) / f"sac-{environment.id}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside, open(beside, "wb") as file:
        np.savez(file, **weights)
    return path
