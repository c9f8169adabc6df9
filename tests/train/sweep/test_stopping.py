"""Who stops a run, and who does not."""

import time
from types import SimpleNamespace

import pytest

from primal_attention.train.sweep.stopping import Deadline, MedianRule, Several, StopHopeless

GOOD, FAIR, POOR = (0.5, 0.7, 0.8, 0.9), (0.3, 0.6, 0.7, 0.7), (0.1, 0.2, 0.2, 0.2)
RULE = MedianRule(least=3, first_epoch=2)


def test_below_the_median_is_hopeless():
    why = RULE.verdict((0.1, 0.3), 10, [GOOD, FAIR, POOR])
    assert why == (
        "stopped after epoch 2 of 10: 30.0 % at best, the median of 3 other runs was 60.0 %"
    )


@pytest.mark.parametrize(
    ("curve", "epochs", "others"),
    [
        ((0.6, 0.1), 10, [GOOD, FAIR, POOR]),  # its best counts, and equal is not below
        ((0.0,), 10, [GOOD, FAIR, POOR]),  # too early
        ((0.0, 0.0), 30, [GOOD, FAIR, POOR]),  # a tenth of the epochs first
        ((0.0, 0.0), 2, [GOOD, FAIR, POOR]),  # at its end anyway
        ((0.0, 0.0), 10, [GOOD, FAIR]),  # too few to compare with
        ((0.0, 0.0), 10, [GOOD, FAIR, (0.9,)]),  # of which one never came so far
    ],
)
def test_not_hopeless(curve, epochs, others):
    assert RULE.verdict(curve, epochs, others) is None


def epoch(number, share):
    return SimpleNamespace(epoch=number, epochs=10, share=share)


def test_a_resumed_run_is_judged_by_all_its_epochs():
    stopper = StopHopeless(RULE, lambda: [GOOD] * 3, before=(0.9, 0.1, 0.1))
    stopper.epoch(epoch(3, 0.1))  # done again after the last checkpoint
    stopper.epoch(epoch(4, 0.1))
    assert stopper.reason is None
    stopper = StopHopeless(RULE, lambda: [GOOD] * 3, before=(0.1,))
    with pytest.raises(KeyboardInterrupt):
        stopper.epoch(epoch(2, 0.2))
    assert stopper.reason.startswith("stopped after epoch 2")


def test_a_deadline_stops_after_it_and_not_at_the_last_step():
    past = Deadline(time.time() - 1, whole=False)
    past.run_started(SimpleNamespace(step=0))
    past.step(SimpleNamespace(step=9, steps=9))
    with pytest.raises(KeyboardInterrupt):
        past.step(SimpleNamespace(step=3, steps=9))
    assert past.reason == "out of time: 3 of 9 steps are done"


def test_what_would_not_end_in_time_is_left(monkeypatch):
    clock = SimpleNamespace(time=lambda: now)
    monkeypatch.setattr("primal_attention.train.sweep.stopping.time", clock)
    now = 1000.0
    for whole, stops in ((True, True), (False, False)):
        deadline = Deadline(1100.0, whole=whole)
        now = 1000.0
        deadline.run_started(SimpleNamespace(step=100))
        now = 1005.0
        deadline.step(SimpleNamespace(step=101, steps=1000))  # too early for a forecast
        now = 1020.0  # ten steps in 20 s, since step 100
        if stops:
            with pytest.raises(KeyboardInterrupt):
                deadline.step(SimpleNamespace(step=110, steps=200))
            assert deadline.reason == "needs 3 min more: 110 of 200 steps are done"
        else:
            deadline.step(SimpleNamespace(step=110, steps=200))
        fits = Deadline(1100.0, whole=True)
        now = 1000.0
        fits.run_started(SimpleNamespace(step=100))
        now = 1020.0
        fits.step(SimpleNamespace(step=110, steps=140))


def test_all_are_told_before_one_stops():
    told = []

    class Listener:
        def __init__(self, name, stops):
            self.name, self.stops = name, stops

        def step(self, event):
            told.append(self.name)
            if self.stops:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Several([Listener("a", True), Listener("b", False)]).step(None)
    assert told == ["a", "b"]
