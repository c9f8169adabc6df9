"""Runs of a sweep: done once, continued, stopped, failed."""

import dataclasses
import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from primal_attention import tasks
from primal_attention.runs.files import write_json
from primal_attention.tasks import DataStatus
from primal_attention.tasks.rl.result import DecisionResult
from primal_attention.train import DecisionConfig, Observer, RunConfig, RunStart, StepEvent, train
from primal_attention.train.config import config_of
from primal_attention.train.sweep import (
    MedianRule,
    Store,
    Terms,
    adopt,
    is_open,
    reopen,
    run_trial,
    work,
    work_in_processes,
)
from primal_attention.train.sweep.store import data_of, key_of

QUICK = {
    "task": "uea/BasicMotions", "width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 2,
    "attention": ("primal",), "batch_size": 32,
}  # fmt: skip


class Count(Observer):
    def __init__(self):
        self.runs, self.from_steps, self.steps = 0, [], 0

    def run_started(self, start):
        self.runs += 1
        self.from_steps.append(start.step)

    def step(self, event):
        self.steps += 1


def test_a_run_is_done_once(store, config):
    count = Count()
    first = run_trial(config(), store, Terms(), observer=count)
    assert first.status == "finished"
    assert first.curve
    assert len(first.curve) == 3
    assert first.selected == max(first.curve)
    assert first.cases == 62
    assert run_trial(config(), store, Terms(), observer=count) == first
    assert count.runs == 1
    assert Store(store.root).outcomes() == {config().fingerprint(): first}


def test_ctrl_c_is_passed_on_and_continued(store, config, stop_at):
    with pytest.raises(KeyboardInterrupt):
        run_trial(config(), store, Terms(), observer=stop_at(7))
    assert store.outcomes() == {}
    count = Count()
    outcome = run_trial(config(), store, Terms(), observer=count)
    assert outcome.status == "finished"
    assert count.from_steps == [7]


def test_a_claimed_run_is_left_to_its_owner(store, config):
    with store.claim(config()):
        assert run_trial(config(), store, Terms()) is None


def test_an_error_is_an_outcome_and_can_be_tried_again(store, config, task, monkeypatch):
    def broken(*arguments, **options):
        raise ValueError("the data\nis gone")

    monkeypatch.setattr(type(task), "load", broken)
    told = []
    work([config(), config(seed=1)], store, Terms(), found=told.append)
    assert [one.reason for one in told] == ["the data is gone"] * 2
    monkeypatch.undo()
    work([config()], store, Terms(), found=told.append)
    assert len(told) == 2  # what failed waits
    reopen([config()], store)
    work([config(), config(seed=1)], store, Terms(), found=told.append)
    assert [one.status for one in told] == ["failed", "failed", "finished"]


def test_hopeless_runs_are_stopped(store, config, outcome):
    settings = config().to_dict()
    for i in range(4):
        rival = outcome(f"rival {i}", curve=(1.0, 1.0, 1.0), selected=1.0)
        store.add(dataclasses.replace(rival, settings=settings))
    terms = Terms(rule=MedianRule(least=4, first_epoch=1))
    found = run_trial(config(lr=1e-6), store, terms)
    assert found.status == "stopped"
    assert len(found.curve) == 1
    assert "100.0 %" in found.reason
    assert not is_open(found, terms)
    assert is_open(found, Terms())  # without the rule it may end
    assert run_trial(config(lr=1e-6), store, Terms()).status == "finished"


@pytest.mark.parametrize(
    "change", [{"protocol": "paper"}, {"attention": ["softmax"]}, {"epochs": 7}]
)
def test_runs_are_judged_by_their_like_alone(store, config, outcome, change):
    """The curves of another protocol would be test accuracies."""
    settings = config().to_dict() | change
    for i in range(4):
        rival = outcome(f"rival {i}", curve=(1.0, 1.0, 1.0), selected=1.0)
        store.add(dataclasses.replace(rival, settings=settings))
    terms = Terms(rule=MedianRule(least=4, first_epoch=1))
    assert run_trial(config(lr=1e-6), store, terms).status == "finished"


def test_a_deadline_pauses_and_a_later_call_goes_on(store, config):
    past = Terms(deadline=time.time() - 1)
    found = run_trial(config(), store, past)
    assert found.status == "paused"
    assert found.reason.startswith("out of time: 1 of ")
    work([config()], store, past)  # nothing is begun after the deadline
    assert store.outcomes()[config().fingerprint()] == found
    count = Count()
    work([config()], store, Terms(deadline=time.time() + 600), observer=count)
    assert count.from_steps == [1]
    assert store.outcomes()[config().fingerprint()].status == "finished"


def test_what_does_not_fit_makes_room(store, config, monkeypatch):
    """Runs that do not fit are put off for those that do; time that is left is still used."""
    calls = []

    def pretend(config, store, terms, observer=None):
        from primal_attention.train.sweep import Outcome

        calls.append((config.seed, terms.whole))
        fits = config.seed == 2 or not terms.whole
        outcome = Outcome(config.fingerprint(), "finished" if fits else "paused", {})
        store.add(outcome)
        return outcome

    monkeypatch.setattr("primal_attention.train.sweep.runner.run_trial", pretend)
    configs = [config(seed=seed) for seed in range(3)]
    work(configs, store, Terms(deadline=time.time() + 600))
    assert calls == [(0, True), (1, True), (2, True), (0, False), (1, False)]


def test_a_run_that_kills_its_process_fails(store, config):
    name = store.folder(config()).name
    (store.root / "claims" / name).write_text("3")
    found = run_trial(config(), store, Terms())
    assert (found.status, found.reason) == ("failed", "the process that ran it died 3 times")


def test_other_data_under_the_same_name_is_another_run(store, config, task, tmp_path, monkeypatch):
    def status(self, data_dir=None):
        return DataStatus(self.name, "", {"train": str(data_dir)}, (), "")

    monkeypatch.setattr(type(task), "status", status)
    for name in "ab":
        (tmp_path / name).mkdir()
    here, there = (dataclasses.replace(config(), data_dir=str(tmp_path / n)) for n in "ab")
    assert key_of(here) == key_of(there)  # the name says which data it is
    monkeypatch.setitem(tasks._tasks, task.name, dataclasses.replace(task, any_data=True))
    assert key_of(here) != key_of(there)
    assert here.fingerprint() == there.fingerprint()  # a run may move with its data
    run_trial(here, store, Terms())
    count = Count()
    found = run_trial(there, store, Terms(), observer=count)
    assert (found.status, found.reason) == ("finished", None)
    assert count.runs == 1
    assert found.data == str(tmp_path / "b")
    assert adopt(Store(tmp_path / "other"), store.runs) == 0


def test_finished_runs_are_adopted(store, config, tmp_path):
    run = train(config(), root=tmp_path / "elsewhere").run
    broken = tmp_path / "elsewhere" / "broken"
    broken.mkdir()
    (broken / "result.json").write_text("{}")
    (broken / "config.json").write_text('{"color": 1}')
    assert adopt(store, tmp_path / "elsewhere") == 1
    assert adopt(store, tmp_path / "elsewhere") == 0
    found = run_trial(config(), store, Terms())
    assert found.run == str(run)
    assert found.accuracy == json.loads((run / "result.json").read_text())["accuracy"]
    assert not store.folder(config()).exists()


def test_runs_without_a_test_set_are_not_adopted(store, config, task, tmp_path):
    task.__class__.has_test = False
    try:
        train(config(epochs=1), root=tmp_path / "elsewhere")
    finally:
        task.__class__.has_test = True
    assert adopt(store, tmp_path / "elsewhere") == 0


@pytest.mark.slow
def test_processes_share_the_runs(store):
    configs = [RunConfig(**QUICK, seed=seed) for seed in range(4)]
    told = []
    work_in_processes(configs, store, Terms(), workers=2, found=told.append)
    assert sorted(one.settings["seed"] for one in told) == [0, 1, 2, 3]
    assert {one.status for one in told} == {"finished"}
    lines = (store.root / "outcomes.jsonl").read_text().splitlines()
    assert len(lines) == 4  # none twice


def test_the_number_of_processes(store, config):
    with pytest.raises(ValueError, match="workers is 0; expected at least 1"):
        work_in_processes([config()], store, Terms(), workers=0)


@pytest.mark.slow
def test_what_a_killed_process_was_at_is_taken_up(store):
    """One of two processes is killed in the middle of a run: nothing is lost or done twice."""
    configs = [RunConfig(**{**QUICK, "epochs": 40}, seed=seed) for seed in range(3)]
    killed = []

    def kill_one():
        while not killed:
            for path in store.runs.glob("*/metrics.jsonl"):
                if b"epoch" in path.read_bytes():
                    child = multiprocessing.active_children()[0]
                    os.kill(child.pid, signal.SIGKILL)
                    killed.append(child.pid)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=kill_one)
    thread.start()
    work_in_processes(configs, store, Terms(), workers=2)
    thread.join()
    assert killed
    lines = [json.loads(line) for line in (store.root / "outcomes.jsonl").open()]
    assert sorted(line["settings"]["seed"] for line in lines) == [0, 1, 2]
    assert {line["status"] for line in lines} == {"finished"}


# -- runs that learn to act ----------------------------------------------------------------------


@pytest.fixture
def acting(monkeypatch):
    """Stands for a run that learns to act: two steps, and a score of 74.5."""
    from primal_attention.train.sweep import trial

    def result(run, config):
        return DecisionResult(
            run=run, target=3600.0, returns=(1.0,), returned=1.0, deviation=0.0, score=74.5,
            data_mean=1.0, best_decile=1.0, decisions_per_second=1.0, seconds=3.0, parameters=7,
            peak_memory_mb=1.0,
        )  # fmt: skip

    def begin(config, *, root, name, observer):
        run = root / name
        run.mkdir()
        write_json(run / "config.json", config.to_dict())
        write_json(run / "result.json", result(run, config).to_dict())
        observer.run_started(RunStart(run, config, 7, "7 parameters", 0, 2))
        for step in (1, 2):
            observer.step(StepEvent(1, step, 2, step, 2, 0.5, None, 1.0, 1e-3))
        return result(run, config)

    monkeypatch.setattr(trial, "train", begin)
    return DecisionConfig(task="rl/hopper-medium", epochs=1, epoch_steps=2)


def test_a_run_that_learns_to_act(store, acting, tmp_path):
    (tmp_path / "data" / "d4rl").mkdir(parents=True)
    file = tmp_path / "data" / "d4rl" / "hopper_medium-v2.hdf5"
    file.touch()
    config = dataclasses.replace(acting, data_dir=str(tmp_path / "data"))
    assert config_of(config.to_dict()) == config

    seen = []

    class Notes(Observer):
        def run_started(self, start):
            seen.append((start.config.task, start.steps))

        def step(self, event):
            seen.append(event.step)

    outcome = run_trial(config, store, Terms(), observer=Notes())
    assert seen == [("rl/hopper-medium", 2), 1, 2]
    assert (outcome.status, outcome.accuracy, outcome.cases) == ("finished", 0.745, None)
    assert outcome.data == str(file)
    assert store.outcomes()[key_of(config)] == outcome
    assert adopt(Store(tmp_path / "other"), store.runs) == 0  # nobody knows from which data
    newer = file.with_name("hopper_medium-v3.hdf5")
    newer.touch()  # is taken from now on, and so the run is another one
    assert data_of(config) == str(newer)
    assert store.outcomes().get(key_of(config)) is None


def test_a_deadline_pauses_a_run_that_learns_to_act(store, acting):
    outcome = run_trial(acting, store, Terms(deadline=time.time()))
    assert (outcome.status, outcome.reason) == ("paused", "out of time: 1 of 2 steps are done")
