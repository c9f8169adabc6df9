"""The example of transport: assignments are the cheapest, and classes that are apart are found."""

import runpy
import sys
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "transport_classifier.py"


@pytest.fixture(scope="module")
def example():
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


def test_within_a_class_the_way_is_the_cheapest(example):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)), np.arange(10) % 2
    centres = example.gaussians(2, 3, rng)
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), example.APART)
    assert abs(centres[0] @ centres[1]) < 1e-9
    goals = example.aligned(x, y, centres, rng)
    for label in (0, 1):
        own, sent = x[y == label], goals[y == label]
        assert np.linalg.norm(sent.mean(0) - centres[label]) < 1.5
        ways = [np.square(own - sent[list(p)]).sum() for p in permutations(range(5))]
        assert np.square(own - sent).sum() == pytest.approx(min(ways))


@pytest.mark.slow
def test_what_is_apart_is_told_apart(example):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = rng.normal(size=(90, 5))
    x[np.arange(90), y] += 8  # in three directions
    folds = example.compare(x, y, 3, 0, steps=150)
    assert len(folds) == 3
    for one in folds:
        assert one.transport > 0.8
        assert one.network > 0.9
        assert 0 < one.optimality <= 1


def test_it_runs(example, monkeypatch, capsys):
    words = ["--sets", "wine", "--folds", "2", "--seeds", "1", "--steps", "20"]
    monkeypatch.setattr(sys, "argv", ["transport_classifier.py", *words])
    example.main()
    head, row = capsys.readouterr().out.splitlines()
    assert "transport" in head
    assert row.startswith("wine")
    assert row.endswith(("better", "worse", "no sure difference"))
