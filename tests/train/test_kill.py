"""Real processes, really killed: whatever happens, the resumed run ends as if nothing had."""

import os
import random
import signal
import time

import pytest

from primal_attention.train import read_metrics, resume

OFTEN = {"checkpoint_seconds": 0.0}  # a checkpoint after every step


def run_until_killed(start, run, changes, kill_at):
    process = start(run, changes, kill_at)
    process.join(240)
    return process.exitcode


def wait_for(condition):
    deadline = time.monotonic() + 240  # a process that imports torch, on a busy machine
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def steps_done(run):
    folder = run / "checkpoints"
    return [int(p.name[5:]) for p in folder.glob("step-*")] if folder.exists() else []


def test_killed_and_resumed(start, tmp_path, outcome, undisturbed):
    run = tmp_path / "run"
    process = start(run, OFTEN)
    wait_for(lambda: steps_done(run))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert max(steps_done(run)) < 12
    # and killed in the middle of writing a checkpoint
    assert run_until_killed(start, run, OFTEN, kill_at=12) == -signal.SIGKILL
    assert list((run / "checkpoints").glob(".tmp-*"))
    resume(run)
    assert outcome(run) == outcome(undisturbed)
    assert not list(run.rglob(".tmp-*"))


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_a_signal_ends_with_a_checkpoint(number, start, tmp_path, outcome):
    run = tmp_path / "run"
    changes = {"epochs": 40, "checkpoint_seconds": 1000.0}
    process = start(run, changes)
    wait_for(lambda: (run / "metrics.jsonl").exists())
    time.sleep(0.05)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 130
    (step,) = steps_done(run)
    lines = [line for line in read_metrics(run) if line["kind"] == "step"]
    assert len(lines) == step < 160


@pytest.mark.slow
def test_killed_at_every_file_operation(start, tmp_path, outcome, undisturbed):
    """The run is killed before its first, second, ... file operation, and each time resumed by a
    process that is killed one operation later than the last was."""
    killed = 0
    for first in (1, 2, 3):
        run = tmp_path / f"run-{first}"
        kill_at = first
        while run_until_killed(start, run, OFTEN, kill_at) == -signal.SIGKILL:
            killed += 1
            kill_at += 3
        assert outcome(run) == outcome(undisturbed)
        assert not list(run.rglob(".tmp-*"))
    assert killed >= 20


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 0.1])
def test_killed_at_random_moments(checkpoint_seconds, start, tmp_path, outcome, undisturbed):
    """At least twenty kills for each setting, anywhere between the start and the end."""
    rng = random.Random(7)
    changes = {"checkpoint_seconds": checkpoint_seconds}
    process = start(tmp_path / "whole", changes)
    began = time.monotonic()
    process.join(60)
    whole = time.monotonic() - began
    assert outcome(tmp_path / "whole") == outcome(undisturbed)
    kills = runs = 0
    while kills < 20:
        run = tmp_path / f"run-{runs}"
        runs += 1
        assert runs < 100
        while not (run / "result.json").exists():
            process = start(run, changes)
            process.join(rng.uniform(0.0, whole))
            process.kill()
            process.join()
            kills += process.exitcode == -signal.SIGKILL
        assert outcome(run) == outcome(undisturbed)
