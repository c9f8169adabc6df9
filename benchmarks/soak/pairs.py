"""Runs of two processes, of which one is killed: the other ends too, and the run that is resumed
ends as one of two processes that nothing happened to."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from . import tiny
from .campaign import Budget, Tally, chance

ALONE = 90.0  # seconds after which the one that is left must have ended


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    settings = tiny.config(folder, devices=2)
    began = time.monotonic()
    whole = folder / "undisturbed"
    assert tiny.finish(whole, settings) == 0, tiny.said(whole)
    expected, seconds = tiny.outcome(whole), time.monotonic() - began
    for number in budget:
        rng, path = chance("pairs", number), folder / f"run-{number}"
        tally.cases += 1
        process = tiny.start(path, settings)
        helper = _helper(process.pid)
        time.sleep(rng.uniform(0.0, seconds))
        first = rng.choice(("main", "helper"))
        victim = process.pid if first == "main" else helper
        if _alive(victim) and process.is_alive():
            os.kill(victim, signal.SIGKILL)  # type: ignore[arg-type]
            tally.counts[f"{first} processes killed"] += 1
        process.join(ALONE)
        left = [pid for pid in (process.pid, helper) if _alive(pid) and not _ends(pid)]
        if left:
            tally.fail(number, f"the {first} process was killed, and the other one goes on")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        process.join()
        if process.exitcode == tiny.BROKEN:
            tally.fail(number, f"the helper was killed: {tiny.said(path)}")
        code = tiny.finish(path, settings)
        if code != 0:
            tally.fail(number, f"ended with {code}: {tiny.said(path)}")
        elif differs := tiny.difference(path, expected):
            tally.fail(number, f"differs in {differs}")
        shutil.rmtree(path, ignore_errors=True)


def _helper(pid: int | None) -> int | None:
    """The process that a run has started."""
    began = time.monotonic()
    while time.monotonic() - began < ALONE:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        if children:
            return int(children[0])
        time.sleep(0.01)
    return None


def _alive(pid: int | None) -> bool:
    try:
        return pid is not None and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def _ends(pid: int | None) -> bool:
    began = time.monotonic()
    while _alive(pid) and time.monotonic() - began < ALONE:
        time.sleep(0.05)
    return not _alive(pid)
