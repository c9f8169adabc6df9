"""Evaluation in the real environment, with agents whose worth is known."""

import dataclasses

import pytest
import torch

from primal_attention.models.decision import DecisionTransformer
from primal_attention.tasks.rl.agents import make_agent
from primal_attention.tasks.rl.environments import get_environment
from primal_attention.tasks.rl.judge import evaluate

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

PENDULUM = dataclasses.replace(get_environment("invertedpendulum"), horizon=40, expert=40.0)


class Scripted:
    """Balances, but pushes with all its might in the episodes that it is told to lose."""

    def __init__(self, lose=()):
        self.lose, self.rewards = list(lose), []

    def reset(self, episodes, target):
        self.target = target

    def act(self, states, rewards=None):
        self.rewards.append(rewards)
        gain = torch.tensor([[0.5], [12.0], [0.7], [1.5]], dtype=states.dtype)
        action = (states @ gain).clamp(-3, 3)
        action[self.lose] = 3.0
        return action


def test_an_episode_counts_until_it_ends():
    agent = Scripted(lose=[1])
    found = evaluate(agent, PENDULUM, episodes=3, seed=1)
    assert found.returns[0] == found.returns[2] == 40.0
    assert found.lengths[0] == 40
    assert found.lengths[1] < 15  # it goes on falling after that, and nobody counts
    assert found.returns[1] in (found.lengths[1], found.lengths[1] - 1)
    assert found.scores[0] == pytest.approx(100.0)
    assert found.mean == pytest.approx(sum(found.returns) / 3)
    assert found.decisions == 120
    assert agent.rewards[0] is None
    assert agent.rewards[1].tolist() == [1.0, 1.0, 1.0]
    assert agent.target == PENDULUM.target


def test_the_seed_decides_where_episodes_begin():
    lengths = [
        evaluate(Scripted([0, 1, 2, 3]), PENDULUM, episodes=4, seed=s).returns for s in (0, 0)
    ]
    assert lengths[0] == lengths[1]


def test_streamed_and_window_play_the_same_while_nothing_is_forgotten():
    torch.manual_seed(0)
    model = DecisionTransformer(
        state_dim=4, action_dim=1, context=40, horizon=40, width=8, heads=2,
        attention=("softmax", "primal"), attention_options={"primal": {"rank": 4}},
        dtype=torch.float64,
    )  # fmt: skip
    window, stream = (
        evaluate(make_agent(model, stream=stream), PENDULUM, episodes=2) for stream in (False, True)
    )
    assert window.returns == stream.returns
    assert window.lengths == stream.lengths


def test_wrong_arguments():
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluate(Scripted(), PENDULUM, episodes=0)
