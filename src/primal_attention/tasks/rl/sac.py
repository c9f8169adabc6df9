"""Policies to record with, trained here: soft actor-critic by stable-baselines3."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.files import replacing, temporary
from .environments import Environment
from .extra import need

CHECKPOINT_STEPS = 10_000  # what an interruption can cost
BUFFER_STEPS = 1_000_000  # that SAC remembers at most


def train_sac(
    environment: Environment,
    folder: Path | str,
    *,
    steps: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Train for `steps` steps of the environment and write `sac-<environment>-<steps>-<seed>.npz`,
    a policy file that `load_policy` reads; one that is there already is left as it is.

    An interrupted training goes on from its last checkpoint, in a new episode and with other random
    numbers, so it does not end in the policy of an uninterrupted one. Checkpoints are
    stable-baselines3's own files, which hold pickles: they lie in a hidden folder beside the policy
    file, are meant for this machine alone, and are removed at the end.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; expected an integer of at least 1")
    path = Path(folder) / f"sac-{environment.id}-{steps}-{seed}.npz"
    if path.exists():
        return path
    need("mujoco", "environments")
    gymnasium = need("gymnasium", "environments")
    sac = need("stable_baselines3", "policies trained here").SAC
    checkpoints = path.with_name(f".{path.stem}.checkpoints")
    checkpoints.mkdir(parents=True, exist_ok=True)
    with closing(gymnasium.make(environment.id)) as env:
        learner = _begin_or_go_on(sac, env, checkpoints, steps, seed)

        def after_step(*_: Any) -> bool:
            done = learner.num_timesteps
            if progress is not None:
                progress(done, steps)
            if done % CHECKPOINT_STEPS == 0:
                _save(learner, checkpoints)
            return True  # go on

        left = steps - learner.num_timesteps
        learner.learn(left, callback=after_step, reset_num_timesteps=False)
    weights = {
        name: tensor.detach().cpu().numpy()
        for name, tensor in learner.policy.state_dict().items()
        if name.startswith("actor.")
    }
    with replacing(path) as beside, open(beside, "wb") as file:
        np.savez(file, **weights)
    shutil.rmtree(checkpoints)
    return path


def _begin_or_go_on(sac: Any, env: Any, checkpoints: Path, steps: int, seed: int) -> Any:
    saved = sorted(
        (p for p in checkpoints.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )
    if not saved:
        # the whole buffer is saved, so it has no room that is never used
        room = min(steps, BUFFER_STEPS)
        return sac("MlpPolicy", env, seed=seed, device="cpu", buffer_size=room)
    learner = sac.load(saved[-1] / "model.zip", env=env, device="cpu")
    learner.load_replay_buffer(saved[-1] / "buffer.pkl")
    learner.set_random_seed(seed + learner.num_timesteps)  # else the first numbers come again
    return learner


def _save(learner: Any, checkpoints: Path) -> None:
    """A folder named after the steps done, whole or not there, in place of those before it."""
    place = checkpoints / str(learner.num_timesteps)
    beside = temporary(place)
    beside.mkdir()
    learner.save(beside / "model.zip")
    learner.save_replay_buffer(beside / "buffer.pkl")
    beside.rename(place)
    for other in checkpoints.iterdir():
        if other != place:
            shutil.rmtree(other)
