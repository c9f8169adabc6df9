"""Files that are whole or not there, and work in chunks that can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

Job = TypeVar("Job")
Progress = Callable[[int, int], None]  # done, of how many


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside its place, renamed at the end: a crash cannot leave it half written."""
    beside = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with open(beside, "wb") as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def replace_file(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def replace_json(path: Path, value: Any) -> None:
    replace_file(path, (json.dumps(value, indent=2) + "\n").encode())


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
