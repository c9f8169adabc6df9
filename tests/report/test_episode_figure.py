"""An episode as a picture."""

import numpy as np
import pytest

from primal_attention.tasks.rl.environments import get_environment
from primal_attention.tasks.rl.film import Episode

pytest.importorskip("matplotlib")

from primal_attention.report import episode_figure
from primal_attention.report.episode_figure import episode


@pytest.mark.parametrize("steps", [1, 30])
def test_an_episode(tmp_path, monkeypatch, steps):
    drawn = []
    lines = episode_figure._lines
    monkeypatch.setattr(
        episode_figure, "_lines", lambda axes, *given: (drawn.append(given), lines(axes, *given))
    )
    states = np.random.default_rng(0).normal(size=(steps, 11)).astype(np.float32)
    played = Episode(states, np.full(steps, 2.0, np.float32), 100.0)
    written = episode(played, get_environment("hopper"), tmp_path / "episode", formats=["png"])
    assert written == [tmp_path / "episode.png"]
    assert written[0].read_bytes()[1:4] == b"PNG"
    (_, (collected, to_go)), (names, rows) = drawn
    np.testing.assert_allclose(collected, 2.0 * np.arange(1, steps + 1))
    np.testing.assert_allclose(collected + to_go, 100.0)
    assert names == ("height", "torso", "thigh", "leg")
    np.testing.assert_array_equal(rows[3], states[:, 3])
