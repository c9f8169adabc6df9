"""Episodes to look at: as arrays, and as moving pictures where a renderer is there."""

import os

import pytest
import torch

from primal_attention.models.decision import DecisionTransformer
from primal_attention.tasks.rl.agents import make_agent
from primal_attention.tasks.rl.environments import get_environment
from primal_attention.tasks.rl.film import film, play
from primal_attention.tasks.rl.judge import evaluate

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
Image = pytest.importorskip("PIL.Image")


def test_a_film(tmp_path):
    if "MUJOCO_GL" not in os.environ:
        pytest.skip("MUJOCO_GL does not name a renderer")
    torch.manual_seed(0)
    model = DecisionTransformer(state_dim=4, action_dim=1, width=8, heads=2, attention=("softmax",))
    path = film(make_agent(model), get_environment("invertedpendulum"), tmp_path / "a.gif", every=1)
    if path is None:
        pytest.skip("there is no renderer")
    with Image.open(path) as picture:
        assert picture.size == (240, 240)
        assert picture.n_frames > 1


def test_without_a_renderer_there_is_no_film(tmp_path, monkeypatch):
    monkeypatch.setattr("primal_attention.tasks.rl.film._renders", lambda env: False)
    model = DecisionTransformer(state_dim=4, action_dim=1, width=8, heads=2, attention=("softmax",))
    path = tmp_path / "a.gif"
    assert film(make_agent(model), get_environment("invertedpendulum"), path) is None
    assert not path.exists()


def test_an_episode_is_played_as_in_an_evaluation():
    torch.manual_seed(0)
    model = DecisionTransformer(state_dim=4, action_dim=1, width=8, heads=2, attention=("softmax",))
    environment = get_environment("invertedpendulum")
    played = play(make_agent(model), environment, seed=20_000, target=7.0)
    found = evaluate(make_agent(model), environment, episodes=1, seed=2, target=7.0)
    assert played.target == 7.0
    assert played.states.shape == (found.lengths[0], 4)
    assert played.rewards.sum() == pytest.approx(found.returns[0])
    assert abs(played.states[-1, 1]) > abs(played.states[0, 1])  # it falls
