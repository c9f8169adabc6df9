"""Many runs: one after the other, or in several processes of this machine."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from ...runs.errors import RunError
from ..config import EngineConfig, config_of
from ..events import Observer
from .store import DEATHS, Outcome, Store, key_of
from .trial import Terms, is_open, run_trial

Found = Callable[[Outcome], None]
More = Callable[[int], Sequence[EngineConfig]]  # further runs for so many places; none: the end
MISSES = 3  # runs in a row that do not fit into the time, after which no others are tried
POLL_SECONDS = 0.2
INTERRUPTED = 130  # the exit code


def work(
    configs: Sequence[EngineConfig],
    store: Store,
    terms: Terms,
    *,
    observer: Observer | None = None,
    found: Found | None = None,
) -> None:
    """Do what is open, in this order; `found` is told every outcome.

    With a deadline, runs that would not end by then are put off, so that others can; what time is
    left goes to the first of those, which a later call continues.
    """
    passes = (True, False) if terms.deadline is not None else (False,)
    for whole in passes:
        own, misses = dataclasses.replace(terms, whole=whole), 0
        for config in configs:
            if terms.over or misses >= MISSES:
                break
            if not is_open(store.outcomes().get(key_of(config)), terms):
                continue
            outcome = run_trial(config, store, own, observer=observer)
            if outcome is None:
                continue
            misses = misses + 1 if outcome.status == "paused" else 0
            if found is not None:
                found(outcome)


def work_in_processes(
    configs: Sequence[EngineConfig],
    store: Store,
    terms: Terms,
    *,
    workers: int,
    found: Found | None = None,
) -> None:
    """`work` in several processes, that share the runs by claims. What a process that died was at
    is taken up by another; a run that kills every process fails."""
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1")
    seen, in_vain = store.outcomes(), 0
    while in_vain <= DEATHS:
        before = len(seen)
        died = _once(configs, store, terms, workers, found, seen)
        left = any(is_open(seen.get(key_of(config)), terms) for config in configs)
        if not died or not left or terms.over:
            return
        in_vain = 0 if len(seen) > before else in_vain + 1
    raise RunError(f"the {workers} processes of the sweep died {in_vain} times in a row")


def _once(
    configs: Sequence[EngineConfig],
    store: Store,
    terms: Terms,
    workers: int,
    found: Found | None,
    seen: dict[str, Outcome],
) -> bool:
    """Start the processes and wait for them; whether one of them was killed."""
    context = multiprocessing.get_context("spawn")
    settings = [config.to_dict() for config in configs]
    threads = max(1, (os.cpu_count() or 1) // workers)
    given = (str(store.root), settings, terms, threads)
    processes: list[BaseProcess] = [
        context.Process(target=_worker, args=given) for _ in range(workers)
    ]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            time.sleep(POLL_SECONDS)
            _tell_new(store, found, seen)
    except BaseException:
        for process in processes:
            if process.is_alive():
                process.terminate()  # they end with a checkpoint
        raise
    finally:
        for process in processes:
            if process.pid is not None:
                process.join()
    _tell_new(store, found, seen)
    codes = [process.exitcode or 0 for process in processes]
    if INTERRUPTED in codes:
        raise KeyboardInterrupt
    if max(codes) > 0:
        raise RunError(f"a process of the sweep failed with exit code {max(codes)}; see above")
    return min(codes) < 0


def _tell_new(store: Store, found: Found | None, seen: dict[str, Outcome]) -> None:
    for fingerprint, outcome in store.outcomes().items():
        if seen.get(fingerprint) != outcome:
            seen[fingerprint] = outcome
            if found is not None:
                found(outcome)


def _worker(root: str, settings: Sequence[Mapping[str, Any]], terms: Terms, threads: int) -> None:
    """The main program of a process."""
    import torch

    torch.set_num_threads(threads)
    try:
        work([config_of(one) for one in settings], Store(root), terms)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
