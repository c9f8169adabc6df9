"""Where the runs of a sweep are done: in this process, in several, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...tasks import get_task
from ..config import EngineConfig
from ..events import Observer
from .runner import Found, More, work, work_in_processes
from .search import search
from .space import Space, grid, trials
from .stopping import MedianRule
from .store import Outcome, Store, key_of
from .trial import Terms, reopen


@dataclass(frozen=True)
class Place:
    """`workers` processes of this machine, or the Ray `cluster` at an address, where a run has so
    many `cpus` and `gpus`. `observer` sees the runs of one process; `tell` gets a line for every
    run that ends."""

    workers: int = 1
    cluster: str | None = None
    cpus: float = 1
    gpus: float = 0
    observer: Observer | None = None
    tell: Callable[[str], None] | None = None

    def __call__(
        self, configs: Sequence[EngineConfig], store: Store, terms: Terms, more: More | None = None
    ) -> None:
        """Do what is open, and then what `more` gives."""
        names, ended = {key_of(config) for config in configs}, 0

        def found(outcome: Outcome) -> None:
            nonlocal ended
            if outcome.fingerprint in names and self.tell is not None:  # the store may have others
                ended += outcome.status != "paused"
                known = "in all" if more is None else "so far"
                self.tell(f"{outcome} ({ended} ended, {len(names)} {known})")

        def asked(places: int) -> Sequence[EngineConfig]:
            new = [] if more is None else more(places)
            names.update(key_of(config) for config in new)
            return new

        if self.cluster is None:
            self._work(configs, store, terms, found)
            while new := asked(self.workers):
                self._work(new, store, terms, found)
            return
        from .cluster import work_on_cluster

        work_on_cluster(
            configs, store, terms,
            address=self.cluster, cpus=self.cpus, gpus=self.gpus, found=found, more=asked,
        )  # fmt: skip

    def _work(
        self, configs: Sequence[EngineConfig], store: Store, terms: Terms, found: Found
    ) -> None:
        if self.workers > 1:
            work_in_processes(configs, store, terms, workers=self.workers, found=found)
        else:
            work(configs, store, terms, observer=self.observer, found=found)


def run_sweep(
    base: EngineConfig,
    space: Space,
    seeds: Sequence[int],
    store: Store,
    *,
    place: Place,
    count: int | None = None,
    early_stop: bool = True,
    retry: bool = False,
) -> list[EngineConfig]:
    """Do the runs of a grid, or of `count` points that are searched, and return them. What is done
    in the store is not done again; `early_stop` stops hopeless runs, `retry` tries again what
    failed."""
    rule = MedianRule() if early_stop and get_task(base.task).objective.stops_early else None

    def run(configs: Sequence[EngineConfig], more: More | None = None) -> None:
        if retry:
            reopen(configs, store)
        place(configs, store, Terms(rule=rule), more)

    if count is not None:
        return search(base, space, seeds, store, run, count=count)
    configs = trials(base, grid(space), seeds)
    run(configs)
    return configs
