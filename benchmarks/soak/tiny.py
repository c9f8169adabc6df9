"""A run that takes a third of a second, in a process that is forked from one with torch in it."""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from primal_attention.runs.files import TEMPORARY
from primal_attention.train import RunError, read_metrics, resume, train
from primal_attention.train.config import EngineConfig, settings_for

SMALL: dict[str, Any] = {
    "target": "kind", "id": "case", "time": "at", "model": "transformer", "width": 8, "heads": 2,
    "feedforward": 8, "rank": 2, "epochs": 3, "batch_size": 8, "dropout": 0.2, "lr": 0.01,
    "optimizer": "radam", "checkpoint_seconds": 0.0,
}  # fmt: skip
# a network with fit and predict that takes as long
ESTIMATOR: dict[str, Any] = {
    "ensemble": "net", "width": 8, "heads": 2, "feedforward": 8, "rank": 2, "steps": 2, "epochs": 1,
    "folds": 0, "groups": 2, "random_state": 0,
}  # fmt: skip
Trouble = Callable[[], None]  # what a process does to itself before it begins
REFUSED, BROKEN, INTERRUPTED = 3, 4, 130  # exit codes: a sentence of ours, any other error
PATIENCE = 240.0  # seconds that a process may take on a busy machine


def write_series(path: Path) -> Path:
    """Twenty-four series of two kinds."""
    rng = random.Random(0)
    rows = ["case,at,a,b,kind"]
    for case in range(24):
        for at in range(4 + case % 3):
            a, b = rng.gauss(case % 2, 1), rng.gauss(0, 1)
            rows.append(f"{case},{at},{a:.4f},{b:.4f},{'xy'[case % 2]}")
    path.write_text("\n".join(rows) + "\n")
    return path


def config(folder: Path, **changes: Any) -> EngineConfig:
    """The settings of the run, with its data in a folder."""
    data = folder / "series.csv"
    if not data.exists():
        write_series(data)
    return settings_for("", ("primal",), data=str(data), **(SMALL | changes))


def start(run: Path, settings: EngineConfig, trouble: Trouble | None = None) -> BaseProcess:
    """A process that begins a run, or resumes the one that is there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.soak.preload"])
    process = context.Process(target=_work, args=(run, settings, trouble))
    process.start()
    return process


def finish(run: Path, settings: EngineConfig, trouble: Trouble | None = None) -> int | None:
    """Likewise, to the end; gives the exit code."""
    process = start(run, settings, trouble)
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode


def said(run: Path) -> str:
    """The error that ended the last process of a run."""
    path = _said(run)
    return path.read_text() if path.exists() else "nothing"


def _said(run: Path) -> Path:
    return run.with_name(f"{run.name}.said")


def _work(run: Path, settings: EngineConfig, trouble: Trouble | None) -> None:
    import torch

    torch.set_num_threads(1)
    said = open(_said(run), "w")  # noqa: SIM115 (opened before there is trouble)
    if trouble is not None:
        trouble()
    try:
        if run.exists():
            resume(run)
        else:
            train(settings, root=run.parent, name=run.name)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BaseException as error:
        said.write(f"{type(error).__name__}: {error}")
        said.close()
        sys.exit(REFUSED if isinstance(error, RunError) else BROKEN)


def outcome(run: Path) -> dict[str, Any]:
    """All that a finished run has computed, without times: weights as bytes, metrics, result."""
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    timed = ("seconds", "peak_memory_mb")
    result = json.loads((run / "result.json").read_text())
    return {
        "weights": (last / "weights.safetensors").read_bytes(),
        "optimizer": (last / "optimizer.safetensors").read_bytes(),
        "best": (run / "best.safetensors").read_bytes(),
        "best.json": (run / "best.json").read_text(),
        "metrics": [{k: v for k, v in m.items() if k not in timed} for m in read_metrics(run)],
        "result": {k: v for k, v in result.items() if k not in timed},
        "status": json.loads((run / "status.json").read_text()),
        "left over": [path.name for path in run.rglob(f"{TEMPORARY}*")],
    }


def difference(run: Path, expected: dict[str, Any]) -> str:
    """What differs from the outcome of a run that nothing happened to; "" if nothing does."""
    try:
        found = outcome(run)
    except (OSError, ValueError, IndexError) as error:
        return f"the run has no end: {error}"
    return ", ".join(name for name, value in expected.items() if found[name] != value)
