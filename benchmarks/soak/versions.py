"""Runs that earlier versions of the package began: this one resumes them, or says why not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from primal_attention.train import RunError, resume

from .campaign import Budget, Tally

ROOT = Path(__file__).parents[2]
# about every twentieth since the first engine, 35c9e54; among them one objective for all tasks
# (a3088b7), the default of tied layers (5ea6820), and the last one before sets (65a0a72)
REVISIONS = (
    "35c9e54", "ba49720", "b472db0", "b292061", "a3088b7", "14c63b8", "ead0901", "bfe009c",
    "5ea6820", "9ced2a3", "28275af", "c9d4248", "403031c", "65a0a72", "15f1446", "4d2d329",
    "3cb985f", "c3f75ca", "378d1ea", "6d6a1d9", "35ec77a",
)  # fmt: skip
# in the folder of the old version: a run that is interrupted after some steps
OLD = """
import json, sys
from primal_attention.train import Observer, RunConfig, train
class Stop(Observer):
    def step(self, event):
        if event.step == {stop}:
            raise KeyboardInterrupt
try:
    train(RunConfig(**json.loads(sys.argv[1])), root=sys.argv[2], name="run", observer=Stop())
except KeyboardInterrupt:
    pass
"""
SETTINGS = {
    "task": "uea/BasicMotions", "attention": ["primal"], "width": 8, "heads": 2, "feedforward": 8,
    "rank": 2, "epochs": 4, "batch_size": 20, "lr": 0.01, "checkpoint_seconds": 0.0,
}  # fmt: skip


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    for number, revision in zip(budget, REVISIONS, strict=False):
        place = folder / revision
        if not unpacked(revision, place):
            tally.figures[f"{revision}:"] = "not in this repository"
            continue
        tally.cases += 1
        if problem := began(place, stop=3):
            tally.counts["not begun by the old version"] += 1
            tally.figures[f"{revision}:"] = problem
            continue
        try:
            result = resume(place / "run")
        except RunError as error:
            tally.counts["refused in a sentence"] += 1
            tally.figures[f"{revision}:"] = str(error)
        except Exception as error:
            tally.fail(number, f"{revision}: {type(error).__name__}: {error}")
        else:
            tally.counts["resumed to the end"] += result.status == "finished"


def unpacked(revision: str, folder: Path) -> bool:
    """The sources of a revision in a folder, if git has it."""
    command = ["git", "-C", str(ROOT), "archive", revision, "src"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
    return done.returncode == 0


def began(folder: Path, stop: int) -> str:
    """Let the old version begin a run; why it could not, or ""."""
    program = OLD.replace("{stop}", str(stop))
    command = [sys.executable, "-c", program, json.dumps(SETTINGS), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PRIMAL_KERNELS": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
