"""Runs as tasks of a Ray cluster. All nodes see the folder of the store, and have this package."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ...runs.errors import RunError
from ...runs.extras import needs_extra
from ..config import EngineConfig, config_of
from .runner import Found, More
from .store import DEATHS, Outcome, Store, key_of
from .trial import Terms, is_open, run_trial

WAIT_SECONDS = 1.0
PATIENCE_SECONDS = 10.0


def work_on_cluster(
    configs: Sequence[EngineConfig],
    store: Store,
    terms: Terms,
    *,
    address: str,
    cpus: float = 1,
    gpus: float = 0,
    found: Found | None = None,
    more: More | None = None,
) -> None:
    """Do what is open on a Ray cluster, one task for every run with the CPUs and GPUs it needs.

    `more` is asked for further runs whenever the cluster has places for them, and gives none in the
    end. A task whose worker or node is lost is started again elsewhere and continues from the last
    checkpoint. Claims in the store keep a run that is still alive from being done twice.
    `address` is that of `ray.init`: "auto", "HOST:PORT" or "ray://HOST:PORT".
    """
    if min(cpus, gpus) < 0 or not max(cpus, gpus) > 0:
        raise RunError(f"a run needs {cpus:g} CPUs and {gpus:g} GPUs; expected more than 0 of one")
    with needs_extra("ray", "a cluster needs"):
        ray = import_module("ray")
    _check(address)
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise RunError(f"no Ray cluster answers at {address!r}: {error}") from error
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=DEATHS)(_task)
    root = str(store.root.resolve())
    waiting: dict[Any, EngineConfig] = {}

    def submit(runs: Sequence[EngineConfig]) -> None:
        known = store.outcomes()
        for config in runs:
            if is_open(known.get(key_of(config)), terms):
                waiting[task.remote(root, config.to_dict(), terms, cpus)] = config

    def refill() -> None:
        while more is not None and not terms.over:
            free = _places(ray, cpus, gpus) - len(waiting)
            if free < 1 or not (new := more(free)):
                return
            submit(new)

    try:
        if not _places(ray, cpus, gpus):
            raise RunError(
                f"a run needs {cpus:g} CPUs and {gpus:g} GPUs; expected a node of the cluster at "
                f"{address!r} that has them"
            )
        submit(configs)
        refill()
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                config = waiting.pop(reference)
                outcome = _get(ray, reference, config, store)
                if outcome is None:  # its claim is with a worker that is lost but not dead yet
                    time.sleep(WAIT_SECONDS)
                    waiting[task.remote(root, config.to_dict(), terms, cpus)] = config
                elif found is not None:
                    found(outcome)
            refill()
    except BaseException:
        for reference in waiting:
            ray.cancel(reference, force=False)
        raise
    finally:
        ray.shutdown()


def _places(ray: Any, cpus: float, gpus: float) -> int:
    """How many runs the nodes that are alive hold at the same time."""
    needs = {"CPU": cpus, "GPU": gpus}
    return sum(
        min(int(node["Resources"].get(kind, 0) / need) for kind, need in needs.items() if need)
        for node in ray.nodes()
        if node["Alive"]
    )


def _check(address: str) -> None:
    """Raise at once where nobody answers; Ray itself would try for minutes."""
    found = re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address)
    if found is None:  # "auto", or a name that Ray knows
        return
    try:
        socket.create_connection((found[1], int(found[2])), PATIENCE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster answers at {address!r}: {error}") from error


def _get(ray: Any, reference: Any, config: EngineConfig, store: Store) -> Outcome | None:
    """The outcome of a task; an outcome of its own if all retries were lost."""
    try:
        values = ray.get(reference)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        lost = Outcome(key_of(config), "failed", config.to_dict(), reason=reason)
        store.add(lost)
        return lost
    return None if values is None else Outcome.from_dict(values)


def _task(
    root: str, settings: Mapping[str, Any], terms: Terms, cpus: float
) -> dict[str, Any] | None:
    """What a node does: one run, in the store that all share."""
    import torch

    torch.set_num_threads(max(1, int(cpus)))
    config = config_of(settings)
    if terms.over:
        late = Outcome(key_of(config), "paused", settings, reason="out of time")
        return late.to_dict()
    outcome = run_trial(config, Store(root), terms)
    return None if outcome is None else outcome.to_dict()
