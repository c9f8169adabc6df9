"""Points, the best of them, and the map."""

import dataclasses

import pytest

from primal_attention.train.sweep import best, grid, make_map, points_csv, summarise, trials

POINTS = [{"rank": r, "eta": e} for r in (2, 3) for e in (0.0, 0.5)]


@pytest.fixture
def outcomes(config, outcome):
    """Ranks 2 and 3 with eta 0 and 0.5, two seeds: one point stopped, one seed failed."""
    found = {}
    for c in trials(config(), POINTS, [0, 1]):
        fields = {"accuracy": c.rank / 10 + c.eta / 10, "selected": 0.9 - c.rank / 10}
        if (c.rank, c.eta) == (3, 0.5):
            fields = {"status": "stopped", "reason": "hopeless"}
        if (c.rank, c.eta, c.seed) == (2, 0.0, 1):
            fields = {"status": "failed", "reason": "NaN"}
        found[c.fingerprint()] = outcome(c.fingerprint(), seconds=1.5, **fields)
    return found


def test_points(config, outcomes):
    configs = trials(config(), POINTS, [0, 1, 2])
    points = summarise(configs, ["rank", "eta"], outcomes)
    assert [dict(p.settings) for p in points] == POINTS
    assert [p.state for p in points] == [
        "1 finished, 1 failed, 1 open",
        "2 finished, 1 open",
        "2 finished, 1 open",
        "2 stopped, 1 open",
    ]
    assert points[1].accuracy == pytest.approx(0.25)
    assert points[0].deviation is None
    assert points[0].reason == "NaN"
    assert points[1].seconds == 3.0


def test_the_best_is_by_the_set_that_chooses(config, outcomes):
    points = summarise(trials(config(), POINTS, [0]), ["rank", "eta"], outcomes)
    assert max(p.accuracy or 0 for p in points) == pytest.approx(0.3)  # rank 3
    assert best(points).settings["rank"] == 2
    assert best([dataclasses.replace(points[0], selected=None)]) is None


def test_csv(config, outcomes):
    points = summarise(trials(config(), POINTS, [0, 1]), ["rank", "eta"], outcomes)
    lines = points_csv(points).splitlines()
    assert lines[0].startswith("rank,eta,accuracy,deviation,selected,finished")
    assert lines[4] == "3,0.5,,,,0,2,0,0,3.0,hopeless"


def test_map_is_laid_out_as_table_6(config, outcomes):
    points = summarise(trials(config(), POINTS, [0, 1]), ["rank", "eta"], outcomes)
    found = make_map(points, "rank", "eta")
    assert found.csv() == "rank \\ eta,0.0,0.5\n2,20.0,25.0\n3,30.0,\n"
    assert found.stopped == {(3, 0.5)}


def test_a_third_setting_is_averaged(config, outcome):
    points = grid({"rank": (2,), "eta": (0.0,), "lr": (0.1, 0.2)})
    configs = trials(config(), points, [0])
    outcomes = {
        c.fingerprint(): outcome(c.fingerprint(), accuracy=c.lr, selected=c.lr) for c in configs
    }
    found = make_map(summarise(configs, ["rank", "eta", "lr"], outcomes), "rank", "eta")
    assert found.cells[2, 0.0] == pytest.approx(0.15)
