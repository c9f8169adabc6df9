"""Rounds, ratios, and a peak that is the memory which was taken."""

import math
import time

import pytest
import torch

from primal_attention.bench.measure import (
    free_megabytes,
    interleaved,
    peak_above_start,
    ratio,
)


def test_every_step_takes_its_turn_in_every_round():
    calls = []
    rounds = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    found = interleaved(steps, 4, warm_up=2, before_round=rounds.append)
    assert rounds == [0, 1, 2, 3]
    assert "".join(calls) == "aabbcc" + "cba" + "abc" + "cba" + "abc"
    assert {name: len(seconds) for name, seconds in found.items()} == dict.fromkeys("abc", 4)


def test_short_steps_are_repeated_within_their_turn():
    calls = []
    found = interleaved({"a": lambda: calls.append(1)}, 3, warm_up=1, least=0.01)
    assert len(calls) == 1 + 3 * 100
    assert max(found["a"]) < 0.01  # seconds of one call, not of all
    slow = []
    interleaved({"a": lambda: slow.append(time.sleep(0.002))}, 3, warm_up=1, least=0.001)
    assert len(slow) == 1 + 3


def test_ratios_are_medians_within_rounds():
    # the machine was ten times slower in the second round
    assert ratio([2.0, 20.0, 2.2], [1.0, 10.0, 1.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0], [1.0, 2.0])


@pytest.mark.parametrize("megabytes", [40, 160])
def test_the_peak_is_what_a_step_takes(megabytes):
    def step():
        first = torch.ones(megabytes * 2**18)  # float32
        del first
        return torch.ones(2**18)

    assert peak_above_start(step) == pytest.approx(megabytes, rel=0.15)


def test_what_lies_on_an_accelerator_is_measured_there(monkeypatch):
    now = {"allocated": 5 * 2**20, "peak": 90 * 2**20}

    def reset():
        now["peak"] = now["allocated"]

    def step():
        now["peak"] = now["allocated"] + 7 * 2**20

    for name, fake in {
        "is_available": lambda: True,
        "memory_allocated": lambda: now["allocated"],
        "max_memory_allocated": lambda: now["peak"],
        "reset_peak_memory_stats": reset,
    }.items():
        monkeypatch.setattr(torch.accelerator, name, fake, raising=False)
    assert peak_above_start(step) == 7.0
    now["allocated"] = 0  # nothing there: the memory of the process counts
    assert peak_above_start(lambda: None) < 7.0


def test_free_memory_is_a_number_of_megabytes():
    assert 10 < free_megabytes() < 1e9 or math.isinf(free_megabytes())
