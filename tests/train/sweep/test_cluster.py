"""A real Ray cluster of two nodes, as processes of this machine."""

import json
import sys
import threading
import time

import pytest

from primal_attention.train import RunConfig, RunError
from primal_attention.train.sweep import Terms
from primal_attention.train.sweep.cluster import work_on_cluster

SETTINGS = {
    "task": "uea/BasicMotions", "width": 8, "heads": 2, "feedforward": 8, "rank": 2,
    "epochs": 150, "attention": ("primal",), "batch_size": 32, "checkpoint_seconds": 0.2,
}  # fmt: skip


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with one CPU each; `cluster.second` is the one that is not the head. On a busy
    machine a node may miss Ray's own deadline for its start, so there are several attempts."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_worker_niceness", "0")  # by default other programs come first
    memory = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    for attempt in range(4):
        found = Cluster()
        try:
            found.add_node(**memory, include_dashboard=False)
            found.second = found.add_node(**memory)
            break
        except Exception:
            found.shutdown()
            if attempt == 3:
                raise
    yield found
    found.shutdown()


def test_missing_ray_is_one_sentence(store, config, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"a cluster needs Ray; install 'primal-attention\[ray\]'"):
        work_on_cluster([config()], store, Terms(), address="auto")


def test_no_cluster_is_one_sentence(store, config, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", object())  # is not asked
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(RunError, match=f"no Ray cluster answers at '{address}'"):
            work_on_cluster([config()], store, Terms(), address=address)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_node_loses_nothing(store, cluster):
    """One of two nodes is killed in the middle of its run: the sweep finishes, nothing is lost, and
    nothing is done twice."""
    configs = [RunConfig(**SETTINGS, seed=seed) for seed in range(4)]
    killed = []

    def kill_one():
        """Once both nodes are in the middle of a run."""
        while len(list(store.runs.glob("*/checkpoints/*"))) < 2 or at_work(store) < 2:
            time.sleep(0.02)
        killed.append(set(store.outcomes()))
        cluster.remove_node(cluster.second, allow_graceful=False)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    told = []
    work_on_cluster(configs, store, Terms(), address=cluster.address, found=told.append)
    assert killed
    assert len(killed[0]) < 4
    lines = [json.loads(line) for line in (store.root / "outcomes.jsonl").open()]
    assert sorted(line["settings"]["seed"] for line in lines) == [0, 1, 2, 3]
    assert {line["status"] for line in lines} == {"finished"}
    assert sorted(one.settings["seed"] for one in told) == [0, 1, 2, 3]
    assert {len(line["curve"]) for line in lines} == {150}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_fills_the_cluster(store, cluster):
    """Two places: two points are at work at the same time, and a point is proposed as soon as one
    has ended, not when all have."""
    pytest.importorskip("optuna")
    from primal_attention.train.sweep import parse_space
    from primal_attention.train.sweep.search import search

    asked, told = [], []

    def engine(configs, more):
        def noted(places):
            asked.append((places, len(told)))
            return more(places)

        work_on_cluster(
            configs, store, Terms(), address=cluster.address, found=told.append, more=noted
        )

    base = RunConfig(**SETTINGS | {"epochs": 20})
    space = parse_space(["rank=2:6", "lr=1e-4:1e-2:log"])
    runs = search(base, space, [0], store, engine, count=5)
    with pytest.raises(RunError, match="a run needs 2 CPUs and 0 GPUs; expected a node"):
        work_on_cluster(runs, store, Terms(), address=cluster.address, cpus=2)
    assert asked[:2] == [(2, 0), (1, 1)]  # both places; then one run has ended, one is at work
    assert len(runs) == len(told) == len(store.outcomes()) == 5
    assert {one.status for one in told} == {"finished"}


def at_work(store):
    """How many runs have metrics but no result."""
    folders = [path.parent for path in store.runs.glob("*/metrics.jsonl")]
    return sum(not (folder / "result.json").exists() for folder in folders)
