"""Normalised scores."""

import pytest

from primal_attention.tasks.rl import get_environment


@pytest.mark.parametrize(
    ("name", "total", "score"),
    [
        ("hopper", -20.272305, 0.0),
        ("hopper", 3234.3, 100.0),
        ("halfcheetah", 12135.0, 100.0),
        ("walker2d", (1.629008 + 4592.3) / 2, 50.0),
    ],
)
def test_scores(name, total, score):
    assert get_environment(name).score(total) == pytest.approx(score)


def test_an_unknown_environment():
    with pytest.raises(ValueError, match="did you mean 'hopper'"):
        get_environment("hoper")
