"""The cost model against times measured here."""

from primal_attention.bench import costs


def test_processor_time_is_the_least_of_one_call(monkeypatch):
    now, turns = 0.0, iter([9.0, 0.5, 0.25, 0.5])  # the first is to warm up

    def step():
        nonlocal now
        now += next(turns)

    monkeypatch.setattr(costs.time, "process_time", lambda: now)
    assert costs.processor_seconds(step) == 0.25
    turns, now = iter([0.0078125] * 99), 0.0
    assert costs.processor_seconds(step) == 0.0078125
    assert len(list(turns)) == 99 - 1 - 3 * 3  # three calls fill a turn
