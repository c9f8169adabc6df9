"""Workers of a Ray cluster that are killed in the middle of their runs: the cluster starts them
again, and the runs end as those that nothing happened to."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from random import Random

from primal_attention.train.sweep import Store, Terms
from primal_attention.train.sweep.cluster import work_on_cluster
from primal_attention.train.sweep.store import DEATHS

from . import tiny
from .campaign import Budget, Tally, chance

TASK = b"ray::_task"  # what a worker is called while it is at a run


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    try:
        from ray.cluster_utils import Cluster
    except ImportError:
        tally.figures["skipped:"] = "Ray is not installed"
        return
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (as Ray has it)
    memory = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**memory, "include_dashboard": False})
    try:
        for number in budget:
            tally.cases += 1
            _case(number, folder / str(number), cluster.address, tally)
    finally:
        cluster.shutdown()


def _case(number: int, folder: Path, address: str, tally: Tally) -> None:
    """One run on the cluster, and the same in this process."""
    folder.mkdir()
    settings = tiny.config(folder, seed=number, epochs=20)
    store = Store(folder / "store")
    over = threading.Event()
    killer = _Killer(chance("workers", number), over, tally)
    killer.start()
    try:
        work_on_cluster([settings], store, Terms(), address=address)
    finally:
        over.set()
        killer.join()
    (found,) = store.outcomes().values()
    if found.status != "finished":
        tally.fail(number, f"the run is {found.status}: {found.reason}")
        return
    whole = folder / "undisturbed"
    assert tiny.finish(whole, settings) == 0, tiny.said(whole)
    (path,) = (p for p in store.runs.iterdir() if p.is_dir())
    if differs := tiny.difference(path, tiny.outcome(whole)):
        tally.fail(number, f"differs in {differs}")


class _Killer(threading.Thread):
    """Kills the worker that is at the run, as often as a run may lose its worker."""

    def __init__(self, rng: Random, over: threading.Event, tally: Tally) -> None:
        super().__init__(daemon=True)
        self.rng, self.over, self.tally = rng, over, tally

    def run(self) -> None:
        for _ in range(self.rng.randint(1, DEATHS - 1)):
            while not (pids := _ours()):
                if self.over.wait(0.02):
                    return
            if self.over.wait(self.rng.uniform(0.0, 3.0)):
                return
            if pids := _ours():
                os.kill(pids[0], signal.SIGKILL)
                self.tally.counts["workers killed"] += 1
                while pids[0] in _ours() and not self.over.wait(0.02):
                    pass


def _ours() -> list[int]:
    """The workers below this process that are at a run."""
    return [pid for pid in _named(TASK) if os.getpid() in _ancestors(pid)]


def _named(title: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().startswith(title):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
        found.add(pid)
    return found
