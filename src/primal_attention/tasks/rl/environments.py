"""The environments of the benchmark: names, returns to aim at, reference scores."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ...names import unknown
from ..base import DataError
from .extra import need
from .trajectories import Trajectories


@dataclass(frozen=True)
class Environment:
    """A continuous control task. The score of a return is 100 (return - random) / (expert - random)
    with the references of D4RL; `target` is the return to ask of an agent, `return_scale` brings
    returns to about one. `states` names the first entries of a state."""

    name: str
    id: str  # in gymnasium
    random: float
    expert: float
    target: float
    return_scale: float
    states: tuple[str, ...] = ()
    horizon: int = 1000

    def score(self, total: float) -> float:
        """The normalised score of a return: 0 as good as random, 100 as an expert."""
        return 100.0 * (total - self.random) / (self.expert - self.random)


# The references are those of D4RL (Fu et al., 2020); D4RL has no InvertedPendulum: its random
# figure is the mean of 2,000 episodes of uniform actions, its expert one the greatest possible.
ENVIRONMENTS = {
    env.name: env
    for env in (
        Environment(
            "halfcheetah", "HalfCheetah-v5", -280.178953, 12135.0, 12000.0, 1000.0,
            ("height", "angle", "back thigh", "back shin"),
        ),
        Environment(
            "hopper", "Hopper-v5", -20.272305, 3234.3, 3600.0, 1000.0,
            ("height", "torso", "thigh", "leg"),
        ),
        Environment(
            "walker2d", "Walker2d-v5", 1.629008, 4592.3, 5000.0, 1000.0,
            ("height", "torso", "right thigh", "right leg"),
        ),
        Environment(
            "invertedpendulum", "InvertedPendulum-v5", 5.2, 1000.0, 1000.0, 1000.0,
            ("position", "angle", "velocity", "angular velocity"),
        ),
    )
}  # fmt: skip


def get_environment(name: str) -> Environment:
    """An environment by name, e.g. "hopper"."""
    if name not in ENVIRONMENTS:
        raise ValueError(unknown("environment", name, ENVIRONMENTS))
    return ENVIRONMENTS[name]


def make_environment(environment: Environment, **options: Any) -> Any:
    """The environment in gymnasium, cut after `horizon` steps."""
    need("mujoco", "environments")
    gymnasium = need("gymnasium", "environments")
    return gymnasium.make(environment.id, max_episode_steps=environment.horizon, **options)


def check_fits(environment: Environment, data: Trajectories) -> None:
    """Make the environment once and compare the widths of its states and actions with the data's;
    a DataError if they differ, an ImportError if there is no environment to be had."""
    with closing(make_environment(environment)) as env:
        spaces = {
            "states": (data.observations, env.observation_space),
            "actions": (data.actions, env.action_space),
        }
    for what, (array, space) in spaces.items():
        if array.shape[1:] != space.shape:
            raise DataError(
                f"{data.name} has {what} of {array.shape[1]} numbers; expected {space.shape[0]} as "
                f"in {environment.id}"
            )


def make_environments(environment: Environment, count: int) -> Any:
    """`count` copies of the environment, stepped together (a gymnasium vector environment)."""
    vector = need("gymnasium.vector", "environments")
    return vector.SyncVectorEnv([lambda: make_environment(environment)] * count)
