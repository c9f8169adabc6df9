"""A disk that is full, read-only or broken at any write, a clock that runs back, a folder that is
moved under a run: one sentence says so, what was saved is whole, and the run that is resumed ends
as one that nothing happened to."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from . import tiny
from .campaign import Budget, Tally, chance
from .operations import Counted, Refused

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT)
ALWAYS = 10**9


@dataclass(frozen=True)
class Setting:
    """A folder with the data, a run that nothing happened to, and its number of operations."""

    folder: Path
    config: tiny.EngineConfig
    expected: dict[str, Any]
    operations: int


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    config, whole = tiny.config(folder), folder / "undisturbed"
    assert tiny.finish(whole, config, Counted(folder / "count")) == 0, tiny.said(whole)
    setting = Setting(folder, config, tiny.outcome(whole), int((folder / "count").read_text()))
    mishaps = {
        "refused writes": refused_write,
        "clocks set back": clock_set_back,
        "folders moved": folder_moved,
    }
    with _small_disk(folder / "small") as there:
        if there:
            mishaps["full disks"] = full_disk
        else:
            tally.figures["real full disks:"] = "none, no right to mount one"
        names = ["refused writes"] * 3 + list(mishaps)
        for number in budget:
            name = names[number % len(names)]
            path = folder / f"run-{number}"
            tally.cases += 1
            tally.counts[name] += 1
            wrong, path = mishaps[name](chance("disk", number), path, setting, number)
            if not wrong and (differs := tiny.difference(path, setting.expected)):
                wrong = f"differs in {differs}"
            if wrong:
                tally.fail(number, f"{name}: {wrong}")
            shutil.rmtree(path, ignore_errors=True)


Ended = tuple[str, Path]  # what was wrong, and where the run is now
Mishap = Callable[[Random, Path, Setting, int], Ended]


def refused_write(rng: Random, path: Path, setting: Setting, number: int) -> Ended:
    """Every operation has its turn; once, twice, or for good."""
    at = 1 + number % setting.operations if rng.random() < 0.7 else rng.randint(1, 40)
    trouble = Refused(at, rng.choice(ERRORS), rng.choice((1, 2, ALWAYS)))
    return _resumed(path, setting, tiny.finish(path, setting.config, trouble))


def full_disk(rng: Random, path: Path, setting: Setting, number: int) -> Ended:
    """A file system of its own with some kilobytes left, and with room again afterwards."""
    path = setting.folder / "small" / path.name
    ballast = path.with_name("ballast")
    size = os.statvfs(path.parent)
    room = 4096 * rng.randint(1, 40)
    with open(ballast, "wb") as file:
        file.write(bytes(max(0, size.f_bavail * size.f_bsize - room)))
    # the driver's own note of the error is not what is tried here
    note = path.with_name(f"{path.name}.said")
    note.symlink_to(setting.folder / note.name)
    code = tiny.finish(path, setting.config)
    ballast.unlink()
    ended = _resumed(path, setting, code)
    note.unlink(missing_ok=True)
    return ended


def _resumed(path: Path, setting: Setting, code: int | None) -> Ended:
    """A run that was refused something said so in a sentence; now it goes on."""
    if code not in (0, tiny.REFUSED):
        return f"ended with {code}: {tiny.said(path)}", path
    sentence = tiny.said(path)
    if code == tiny.REFUSED and ("cannot" not in sentence or "\n" in sentence):
        return f"said {sentence!r}", path
    if code == 0 and (path / "result.json").exists():
        return "", path
    if (code := tiny.finish(path, setting.config)) != 0:
        return f"resumed, it ended with {code}: {tiny.said(path)}", path
    return "", path


@dataclass(frozen=True)
class Clock:
    """The time of day goes back and forth at every look; what only grows still grows."""

    seed: int

    def __call__(self) -> None:
        rng, real = Random(self.seed), time.time
        time.time = lambda: real() + rng.uniform(-1e9, 1e6)  # type: ignore[assignment]


def clock_set_back(rng: Random, path: Path, setting: Setting, number: int) -> Ended:
    code = tiny.finish(path, setting.config, Clock(number))
    return ("" if code == 0 else f"ended with {code}: {tiny.said(path)}"), path


def folder_moved(rng: Random, path: Path, setting: Setting, number: int) -> Ended:
    """Between two of its steps; the run says that it cannot write, and goes on where it is now."""
    process = tiny.start(path, setting.config)
    began = time.monotonic()
    steps = path / "checkpoints" / f"step-{rng.randint(1, 8):08d}"
    while process.is_alive() and not steps.exists() and time.monotonic() - began < tiny.PATIENCE:
        time.sleep(0.001)
    moved = path.with_name(f"{path.name}-moved")
    os.rename(path, moved)
    process.join(tiny.PATIENCE)
    if process.exitcode not in (0, tiny.REFUSED):
        return f"ended with {process.exitcode}: {tiny.said(path)}", moved
    if path.exists():
        return f"made {path} again", moved
    if (code := tiny.finish(moved, setting.config)) != 0:
        return f"resumed, it ended with {code}: {tiny.said(moved)}", moved
    return "", moved


@contextmanager
def _small_disk(place: Path) -> Iterator[bool]:
    """A file system of two megabytes in memory, if this process may mount one."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "soak", str(place)]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield bool(mounted)
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
