"""Work in chunks that can be done by several processes, and resumed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Progress = Callable[[int, int], None]  # done, of how many


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

    def tell() -> None:
        if progress is not None:
            progress(done, total)

    tell()
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            work(job)
            done += 1
            tell()
        return
    # spawn: a fork of a process that has torch's threads may hang
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        for _ in pool.imap_unordered(work, jobs):
            done += 1
            tell()
