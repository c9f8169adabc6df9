"""SIGKILL at any moment of a run, before any file operation, and half way through any write: the
run that is resumed ends as one that nothing happened to, to the last bit."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random
from signal import SIGKILL

from . import tiny
from .campaign import Budget, Tally, chance
from .operations import Counted, Struck

MOST = 3  # kills of one run before it may go to its end


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    settings = tiny.config(folder)
    whole = folder / "undisturbed"
    assert tiny.finish(whole, settings, Counted(folder / "count")) == 0, tiny.said(whole)
    expected, operations = tiny.outcome(whole), int((folder / "count").read_text())
    began = time.monotonic()
    tiny.finish(folder / "again", settings)
    seconds = time.monotonic() - began
    for number in budget:
        rng, path = chance("kills", number), folder / f"run-{number}"
        tally.cases += 1
        killed = 0
        code = None
        for _ in range(rng.randint(1, MOST)):
            code = _blow(rng, path, settings, operations, seconds)
            killed += code == -SIGKILL
            if code != -SIGKILL:
                break
        if code == -SIGKILL:
            code = tiny.finish(path, settings)
        tally.counts["kills"] += killed
        tally.counts["runs killed at least once"] += killed > 0
        if code != 0:
            tally.fail(number, f"ended with {code}: {tiny.said(path)}")
        elif differs := tiny.difference(path, expected):
            tally.fail(number, f"differs in {differs}")
        else:
            shutil.rmtree(path)


def _blow(
    rng: Random, path: Path, settings: tiny.EngineConfig, operations: int, seconds: float
) -> int | None:
    """Begin or resume the run and strike; gives the exit code."""
    if rng.random() < 0.5:
        # one that is resumed has less to do; a blow that comes too late is none
        return tiny.finish(path, settings, Struck(rng.randint(1, operations)))
    process = tiny.start(path, settings)
    process.join(rng.uniform(0.0, seconds))
    process.kill()
    process.join()
    return process.exitcode
