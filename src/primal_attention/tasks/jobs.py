"""Work in chunks that can be done by several processes, and resumed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

Job = TypeVar("Job")
Progress = Callable[[int, int], None]  # done, of how many


def check_least(settings: Any, **least: int) -> None:
    """Raise unless the settings with these names are at least so large."""
    for name, low in least.items():
        if (value := getattr(settings, name)) < low:
            raise ValueError(f"{name} is {value}; expected an integer of at least {low}")


def work_off(
    work: Callable[[Job], None],
    jobs: Sequence[Job],
    *,
    total: int,
    workers: int,
    progress: Progress | None,
) -> None:
    """Do jobs in several processes, of `total` in all of which the others are done already.

    A job must depend on its own description alone: the number of workers changes nothing.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected an integer of at least 1")
    done = total - len(jobs)
    tell = progress or (lambda done, total: None)
    tell(done, total)
    with ExitStack() as stack:
        each: Iterable[None] = map(work, jobs)
        if workers > 1 and len(jobs) > 1:
            # spawn: a fork of a process that has torch's threads may hang
            processes = multiprocessing.get_context("spawn").Pool(min(workers, len(jobs)))
            each = stack.enter_context(processes).imap_unordered(work, jobs)
        for count, _ in enumerate(each, done + 1):
            tell(count, total)
