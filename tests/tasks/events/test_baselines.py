"""Tables of counts, by hand."""

import math

import numpy as np
import pytest

from primal_attention.tasks.events.baselines import baselines
from primal_attention.tasks.events.sets import EventSet


def events(*types, gap=1.0):
    own = tuple(np.array(t) for t in types)
    times = tuple(np.arange(len(t)) * gap for t in own)
    return EventSet("made", times, own, ("a", "b", "c"))


def test_counting():
    train = events([0, 1, 0, 1, 0, 1], [2, 2, 2, 2, 2, 2, 2, 2])
    test = events([0, 1, 0, 2, 2])
    found = baselines(train, test)
    assert found["majority"]["accuracy"] == 0.5  # c, c
    assert found["repeat"]["accuracy"] == 0.25  # the last c
    assert found["bigram"]["accuracy"] == 0.75  # all but c after a
    assert found["bigram"]["loss"] < found["majority"]["loss"]
    counts = np.array([2, 3, 7]) + 0.1
    share = counts / counts.sum()
    after_a, after_b, after_c = np.array([0, 3, 0]), np.array([2, 0, 0]), np.array([0, 0, 7])

    def nats(table, target):
        return -math.log((table[target] + 2 * share[target]) / (table.sum() + 2))

    expected = nats(after_a, 1) + nats(after_b, 0) + nats(after_a, 2) + nats(after_c, 2)
    assert found["bigram"]["loss"] == pytest.approx(expected / 4)


def test_many_types_and_parts_of_the_events(monkeypatch):
    """Counts of all triples of 4000 types would be 512 GB."""
    rng = np.random.default_rng(0)
    names = tuple(map(str, range(4000)))

    def draw(length):
        types = rng.integers(0, 4000, length) // rng.integers(1, 1000, length)
        return EventSet("made", (np.arange(float(length)),), (types,), names)

    train, test = draw(3000), draw(300)
    whole = baselines(train, test)
    monkeypatch.setattr("primal_attention.tasks.events.baselines.CELLS", 7 * 4000)
    for name, figures in baselines(train, test).items():
        assert figures == pytest.approx(whole[name])
    assert whole["trigram"]["loss"] < math.log(4000)


def test_one_log_normal_for_all_gaps():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.lognormal(1.0, 0.5, size=4000))
    data = EventSet("made", (times,), (np.zeros(4000, dtype=np.int64),), ("a",))
    found = baselines(data, data)["log-normal"]["gap_loss"]
    entropy = 1.0 + 0.5 * math.log(2 * math.pi * math.e * 0.25)
    assert found == pytest.approx(entropy, abs=0.03)
