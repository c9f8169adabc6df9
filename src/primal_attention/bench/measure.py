"""Timing by ratios inside one run, and the peak of memory that a step needs."""

from __future__ import annotations

import ctypes
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import torch

STATUS = Path("/proc/self/status")
Clock = Callable[[], float]


def clock_of(threads: int, device: str = "cpu") -> Clock:
    """The CPU time of this process where one thread of a CPU does all the work: what other programs
    take of the machine is not in it. Otherwise the time that passes."""
    return time.process_time if threads == 1 and device == "cpu" else time.perf_counter


def interleaved(
    steps: Mapping[str, Callable[[], object]],
    repeats: int,
    warm_up: int = 3,
    *,
    least: float = 0.0,
    before_round: Callable[[int], None] = lambda number: None,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every repeat of every step; all steps take their turn in each round, there and
    back. A step that is shorter than `least` seconds is repeated within its turn to fill them."""
    calls = {}
    for name, step in steps.items():
        seconds = min(timed(step, clock=clock) for _ in range(max(1, warm_up)))
        calls[name] = max(1, min(100, math.ceil(least / max(seconds, 1e-9))))
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(repeats):
        before_round(number)
        turn = list(steps.items())
        for name, step in turn[:: 1 if number % 2 else -1]:
            found[name].append(timed(step, calls[name], clock))
    return found


def timed(step: Callable[[], object], calls: int = 1, clock: Clock = time.perf_counter) -> float:
    """Seconds of one call, the mean of several."""
    start = clock()
    for _ in range(calls):
        step()
    return (clock() - start) / calls


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch inside a `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ratio(seconds: Sequence[float], unit: Sequence[float]) -> float:
    """The median over rounds of the ratio within a round: slow spells of the machine cancel."""
    return statistics.median(a / b for a, b in zip(seconds, unit, strict=True))


def peak_above_start(step: Callable[[], object]) -> float:
    """Megabytes that a step needs at its peak on top of what was resident before it; those of the
    accelerator, if this process has something there."""
    device = _memory_of_accelerator() if torch.accelerator.is_available() else None
    if device is not None and device.memory_allocated() > 0:
        device.reset_peak_memory_stats()
        held = device.memory_allocated()
        step()
        return float(device.max_memory_allocated() - held) / 2**20
    with suppress(OSError, AttributeError):  # another C library: nothing to give back
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if not STATUS.exists():  # not Linux: the high-water mark cannot be reset
        unit = 2**20 if sys.platform == "darwin" else 2**10
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
    Path("/proc/self/clear_refs").write_text("5")
    before = status_kilobytes("VmRSS")
    step()
    return (status_kilobytes("VmHWM") - before) / 1024


def _memory_of_accelerator() -> ModuleType:
    """Where torch counts it: in `torch.accelerator`, before 2.9 in `torch.cuda` and its like."""
    new = hasattr(torch.accelerator, "memory_allocated")
    return torch.accelerator if new else torch.get_device_module()


def status_kilobytes(field: str) -> int:
    """A figure of this process as Linux keeps it, such as VmRSS."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1])


def free_megabytes(device: str = "cpu") -> float:
    """Memory that a new process may fill: the device's, or what a container leaves of the
    machine's. Infinite where the system does not say."""
    if device != "cpu":
        ask = getattr(torch.accelerator, "get_memory_info", None)  # since 2.10
        return float((ask or torch.get_device_module(device).mem_get_info)(device)[0]) / 2**20
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]) / 1024
    except (OSError, StopIteration):
        return math.inf
    try:
        group = Path("/sys/fs/cgroup")
        most, now = ((group / f"memory.{x}").read_text().strip() for x in ("max", "current"))
    except OSError:
        return free
    return free if most == "max" else min(free, (int(most) - int(now)) / 2**20)
