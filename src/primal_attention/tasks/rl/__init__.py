"""Offline reinforcement learning: recorded episodes, agents, and the environments to try them in.

from primal_attention.tasks.rl.agents import make_agent
from primal_attention.tasks.rl.judge import evaluate
from primal_attention.tasks.rl.sets import get_rl_task

task = get_rl_task("rl/hopper-medium")
data = task.episodes(folder)
print(evaluate(make_agent(model, stream=True), task.environment).score)
"""
