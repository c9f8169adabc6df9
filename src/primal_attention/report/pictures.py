"""The pictures that belong to a finished run, as its objective names them."""

from __future__ import annotations

import os
from pathlib import Path

from ..runs.extras import is_installed
from ..runs.files import explained, read_object
from ..tasks import get_task
from ..train.config import DecisionConfig


def draw(run: Path) -> None:
    """Draw beside the result what is not there yet; figures where matplotlib is at hand."""
    from . import figures

    for name in get_task(read_object(run / "config.json")["task"]).objective.pictures:
        if name == "episode":
            _episode(run)
        elif is_installed("matplotlib"):
            getattr(figures, name)(run, formats=("png",))


def _episode(run: Path) -> None:
    """An episode of the agent: a film, or a plot where there is no renderer."""
    if any((run / name).exists() for name in ("episode.gif", "episode.png")):
        return
    from ..tasks.rl.agents import make_agent
    from ..tasks.rl.film import film, play
    from ..tasks.rl.objective import trained_model
    from ..tasks.rl.sets import get_rl_task
    from ..train.checkpoint import tensors_from_bytes
    from .episode_figure import episode

    config = DecisionConfig.from_dict(read_object(run / "config.json"))
    with explained(f"read the weights of {run}"):
        weights = tensors_from_bytes((run / "last.safetensors").read_bytes())
    environment = get_rl_task(config.task).environment
    agent = make_agent(trained_model(config, weights), stream=config.stream)
    screen = {"MUJOCO_GL", "DISPLAY"} & set(os.environ)  # without them a renderer may abort
    if not screen or not film(agent, environment, run / "episode.gif", target=config.target):
        played = play(agent, environment, target=config.target)
        episode(played, environment, run / "episode", formats=["png"])
