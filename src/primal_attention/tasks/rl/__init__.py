"""Offline reinforcement learning: recorded episodes, agents, and the environments to try them in.

from primal_attention.tasks.rl import evaluate, get_rl_task, make_agent

data = get_rl_task("rl/hopper-medium").load(folder)
print(evaluate(make_agent(model, stream=True), task.environment).score)
"""

from __future__ import annotations

from .agents import StreamAgent, WindowAgent, make_agent
from .environments import ENVIRONMENTS, Environment, get_environment
from .evaluate import Evaluation, evaluate
from .files import read_d4rl, read_minari, write_d4rl
from .sets import RLTask, get_rl_task, rl_tasks
from .trajectories import ContextBatch, Contexts, Trajectories

__all__ = [
    "ENVIRONMENTS",
    "ContextBatch",
    "Contexts",
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
