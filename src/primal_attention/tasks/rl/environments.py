"""The environments of the benchmark: names, returns to aim at, reference scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...names import unknown
from .extra import need


@dataclass(frozen=True)
class Environment:
    """A continuous control task. The score of a return is 100 (return - random) / (expert - random)
    with the references of D4RL; `target` is the return to ask of an agent, `return_scale` brings
    returns to about one."""

    name: str
    id: str  # in gymnasium
    random: float
    expert: float
    target: float
    return_scale: float
    horizon: int = 1000

    def score(self, total: float) -> float:
        """The normalised score of a return: 0 as good as random, 100 as an expert."""
        return 100.0 * (total - self.random) / (self.expert - self.random)


# The references are those of D4RL (Fu et al., 2020); D4RL has no InvertedPendulum: its random
# figure is the mean of 2,000 episodes of uniform actions, its expert one the greatest possible.
ENVIRONMENTS = {
    env.name: env
    for env in (
        Environment("halfcheetah", "HalfCheetah-v5", -280.178953, 12135.0, 12000.0, 1000.0),
        Environment("hopper", "Hopper-v5", -20.272305, 3234.3, 3600.0, 1000.0),
        Environment("walker2d", "Walker2d-v5", 1.629008, 4592.3, 5000.0, 1000.0),
        Environment("invertedpendulum", "InvertedPendulum-v5", 5.2, 1000.0, 1000.0, 1000.0),
    )
}


def get_environment(name: str) -> Environment:
    """An environment by name, e.g. "hopper"."""
    if name not in ENVIRONMENTS:
        raise ValueError(unknown("environment", name, ENVIRONMENTS))
    return ENVIRONMENTS[name]


def make_environments(environment: Environment, count: int) -> Any:
    """`count` copies of the environment, stepped together (a gymnasium vector environment)."""
    need("mujoco", "environments")
    gymnasium = need("gymnasium", "environments")

    def make() -> Any:
        return gymnasium.make(environment.id, max_episode_steps=environment.horizon)

    makers: list[Callable[[], Any]] = [make] * count
    return gymnasium.vector.SyncVectorEnv(makers)
