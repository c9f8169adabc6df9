"""Offline reinforcement learning: recorded episodes, agents, and the environments to try them in.

from primal_attention.tasks.rl import evaluate, get_rl_task, make_agent

task = get_rl_task("rl/hopper-medium")
data = task.episodes(folder)
print(evaluate(make_agent(model, stream=True), task.environment).score)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazily import lazily

if TYPE_CHECKING:
    from .agents import StreamAgent, WindowAgent, make_agent
    from .environments import ENVIRONMENTS, Environment, get_environment
    from .files import read_d4rl, read_minari, write_d4rl
    from .judge import Evaluation, evaluate
    from .sets import RLTask, get_rl_task, rl_tasks
    from .settings import DecisionConfig
    from .trajectories import ContextBatch, Contexts, Trajectories

__all__ = [
    "ENVIRONMENTS",
    "ContextBatch",
    "Contexts",
    "DecisionConfig",
    "Environment",
    "Evaluation",
    "RLTask",
    "StreamAgent",
    "Trajectories",
    "WindowAgent",
    "evaluate",
    "get_environment",
    "get_rl_task",
    "make_agent",
    "read_d4rl",
    "read_minari",
    "rl_tasks",
    "write_d4rl",
]

__getattr__ = lazily(
    __name__,
    {
        ".agents": "StreamAgent WindowAgent make_agent",
        ".environments": "ENVIRONMENTS Environment get_environment",
        ".judge": "Evaluation evaluate",
        ".files": "read_d4rl read_minari write_d4rl",
        ".sets": "RLTask get_rl_task rl_tasks",
        ".settings": "DecisionConfig",
        ".trajectories": "ContextBatch Contexts Trajectories",
    },
)
