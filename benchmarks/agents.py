"""The table of agents in docs/results/rl.md: actions a second, streamed against the whole window.

OMP_NUM_THREADS=1 python benchmarks/agents.py

One episode at a time, a model of the paper's size with random weights. Every figure is the best of
some rounds, in which the agents take turns.
"""

from __future__ import annotations

import argparse

import torch

from primal_attention.models.decision import DecisionTransformer
from primal_attention.tasks.rl.agents import WindowAgent, make_agent
from primal_attention.tasks.rl.judge import decisions_per_second

ATTENTIONS = (("softmax", "softmax", "primal"), ("softmax",) * 3, ("primal",) * 3)
ENDLESS = 10**9


def timed(context: int) -> dict[str, int]:
    """How many actions of each agent are timed."""
    return {"window": max(2, 40 // context), "renewed": max(context // 2, 10), "endless": 40}


def agents(model: DecisionTransformer, context: int) -> dict[str, WindowAgent]:
    """The agents of a row."""
    return {
        "window": make_agent(model, context=context),
        "renewed": make_agent(model, stream=True, context=context),
        "endless": make_agent(model, stream=True, context=ENDLESS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[20, 200, 2000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} thread(s), torch {torch.__version__}\n")
    print("| attention | context | window | streamed, renewed | streamed, endless |")
    print("|---|---|---|---|---|")
    for names in ATTENTIONS:
        for context in options.contexts:
            decisions = timed(context)
            horizon = context + max(decisions.values())  # a full context, then the timed actions
            model = DecisionTransformer(
                state_dim=11, action_dim=3, attention=names, context=context, horizon=horizon
            )
            best: dict[str, float] = {}
            row = agents(model, context)
            for _ in range(options.repeats):
                for kind, agent in row.items():
                    pace = decisions_per_second(agent, decisions=decisions[kind], after=context)
                    best[kind] = max(pace, best.get(kind, 0.0))
            figures = " | ".join(f"{pace:.3g}" for pace in best.values())
            print(f"| {', '.join(names)} | {context:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
