"""Timing by ratios inside one run, and peak memory in a process of its own."""

from __future__ import annotations

import ctypes
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def interleaved(
    steps: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 3
) -> dict[str, list[float]]:
    """Seconds of every repeat of every step, all steps in turn in each round."""
    for step in steps.values():
        for _ in range(warm_up):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: list[float], unit: list[float]) -> float:
    """The median over rounds of the ratio within a round: slow spells of the machine cancel."""
    return statistics.median(a / b for a, b in zip(seconds, unit, strict=True))


def peak_megabytes(script: Path, *arguments: str) -> float:
    """Run `script --memory-of ...` in its own process; it prints a JSON number."""
    command = [sys.executable, str(script), "--memory-of", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def peak_above_start(step: Callable[[], object]) -> float:
    """Megabytes that a step needs at its peak on top of what was resident before it."""
    _trim()
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: the high-water mark cannot be reset
        unit = 2**20 if sys.platform == "darwin" else 2**10
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
    Path("/proc/self/clear_refs").write_text("5")
    before = _status(status, "VmRSS")
    step()
    return (_status(status, "VmHWM") - before) / 1024


def _status(status: Path, field: str) -> int:
    line = next(x for x in status.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1])


def _trim() -> None:
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # another C library: nothing to give back
        return
