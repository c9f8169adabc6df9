"""Episodes as moving pictures, where a renderer is there."""

import os

import pytest
import torch

from primal_attention.models.decision import DecisionTransformer
from primal_attention.tasks.rl import get_environment, make_agent
from primal_attention.tasks.rl.film import film

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
