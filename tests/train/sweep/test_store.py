"""The store: whole lines whoever writes, claims that die with their process."""

import contextlib
import multiprocessing
import os
import signal

import pytest

from primal_attention.train import RunConfig, RunError
from primal_attention.train.sweep import Outcome, Store

CONFIG = RunConfig(task="uea/BasicMotions")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["primal_attention.train.sweep"])


def write_many(root, name, count):
    for i in range(count):
        Store(root).add(Outcome(f"{name}-{i}", "finished", {"text": "ä" * 3000}, accuracy=i / 100))


def claim_and_wait(root, pipe):
    with Store(root).claim(CONFIG) as deaths:
        pipe.send(deaths)
        pipe.recv()


def held(root):
    """A process that holds the claim, once it does; with what the claim told it."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=claim_and_wait, args=(root, there))
    process.start()
    return process, here, here.recv()


def test_many_processes_write_at_the_same_time(store):
    processes = [CONTEXT.Process(target=write_many, args=(store.root, name, 40)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = store.outcomes()
    assert set(found) == {f"{name}-{i}" for name in "abcd" for i in range(40)}
    assert found["c-7"].accuracy == 0.07
    assert found["c-7"].settings == {"text": "ä" * 3000}


def test_the_last_outcome_counts(store, outcome):
    store.add(outcome("a", status="failed", reason="x"))
    store.add(outcome("a", curve=(0.5, 0.25)))
    assert store.outcomes() == {"a": outcome("a", curve=(0.5, 0.25))}


def test_half_a_line_is_not_read_and_not_continued(store, outcome):
    store.add(outcome("a"))
    path = store.root / "outcomes.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"fingerprint": "b", "stat')  # its writer was killed
    assert set(store.outcomes()) == {"a"}
    store.add(outcome("c"))
    assert set(store.outcomes()) == {"a", "c"}
    assert path.read_bytes().count(b"\n") == 2


def test_a_file_of_something_else_is_refused(store):
    (store.root / "outcomes.jsonl").write_text('{"color": "red"}\n')
    with pytest.raises(RunError, match=r"outcomes\.jsonl is not a list of outcomes"):
        store.outcomes()


def test_a_claim_is_exclusive_and_ends_with_its_owner(store):
    process, pipe, deaths = held(store.root)
    assert deaths == 0
    with store.claim(CONFIG) as mine:
        assert mine is None
    pipe.send("end")
    process.join()
    with store.claim(CONFIG) as mine:
        assert mine == 0


def test_claims_of_different_runs_do_not_meet(store):
    with store.claim(CONFIG) as one, store.claim(RunConfig(task=CONFIG.task, seed=1)) as other:
        assert one == other == 0


def test_deaths_are_counted_and_forgotten_after_an_end(store):
    for expected in (0, 1):
        process, _, deaths = held(store.root)
        assert deaths == expected
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    with contextlib.suppress(KeyboardInterrupt), store.claim(CONFIG) as deaths:
        assert deaths == 2
        raise KeyboardInterrupt
    with store.claim(CONFIG) as deaths:
        assert deaths == 0


def test_folders_depend_on_what_decides_the_result(store):
    assert store.folder(CONFIG) != store.folder(RunConfig(task=CONFIG.task, eta=0.2))
    assert store.folder(CONFIG) == store.folder(RunConfig(task=CONFIG.task, data_dir="elsewhere"))
