"""The worked example, on a small graph in which every connection goes one way."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "directed_graph.py"


@pytest.fixture
def example():
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


@pytest.fixture
def graph():
    """Three groups in a ring: each talks to the next one only."""
    rng = np.random.default_rng(0)
    group = np.arange(45) // 15
    follows = group[None, :] == (group[:, None] + 1) % 3
    return np.where(follows, rng.poisson(3.0, (45, 45)), 0).astype(float), group.astype(str)


def test_direction_is_found_where_there_is_one(example, graph):
    right, pairs = example.direction(graph[0], rank=3)
    assert pairs > 20
    assert right > 0.95
    symmetric = np.maximum(graph[0], graph[0].T) > 0
    guess = example.KernelSVD(3, kernel="precomputed").fit(symmetric.astype(float))
    inverse = guess.inverse_transform()
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-9)


@pytest.mark.slow
def test_it_runs(example, graph, tmp_path, monkeypatch, capsys):
    for side in ("left", "right"):
        np.savetxt(tmp_path / f"{side}_adjacency.csv", graph[0], fmt="%d")
        np.savetxt(tmp_path / f"{side}_cell_labels.csv", graph[1], fmt="%s")
    monkeypatch.setattr(sys, "argv", ["directed_graph.py", "--data", str(tmp_path)])
    example.main()
    out = capsys.readouterr().out
    assert "left hemisphere: 45 neurons" in out
    assert "= 1.00" in out
    assert "guessed right" in out


def test_without_the_data_it_says_where_it_is(example, monkeypatch):
    monkeypatch.setitem(example.connectome.__globals__, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="graspologic"):
        example.connectome()
