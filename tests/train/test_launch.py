"""Two data-parallel processes compute what one computes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from primal_attention.train import (
    Observer,
    RunConfig,
    RunError,
    launch,
    read_metrics,
    resume,
    train,
    train_seeds,
)

# the processes that are started know the package's own tasks only
SETTINGS = {
    "task": "uea/BasicMotions", "width": 16, "heads": 2, "feedforward": 16, "rank": 3,
    "epochs": 2, "batch_size": 31, "lr": 0.01, "eta": 0.3, "dropout": 0.0, "optimizer": "adam",
    "precision": "64-true", "attention": ("softmax", "primal"), "accelerator": "cpu",
}  # fmt: skip

needs_gloo = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="needs gloo"
)


def settings(**changes):
    return RunConfig(**(SETTINGS | changes))


def assert_same(run, other):
    """Losses, accuracies and weights agree up to the order of sums."""
    lines, theirs = read_metrics(run), read_metrics(other)
    assert len(lines) == len(theirs)
    for line, its in zip(lines, theirs, strict=True):
        assert line.keys() == its.keys()
        for name in line.keys() - {"kind", "split", "seconds", "primal_layers"}:
            assert line[name] == pytest.approx(its[name], rel=1e-5), name
        layers, others = (each.get("primal_layers", {}) for each in (line, its))
        assert layers.keys() == others.keys()
        for layer, record in layers.items():
            for name, values in others[layer].items():
                assert record[name] == pytest.approx(values, rel=1e-4), (layer, name)
    first, second = (sorted((r / "checkpoints").iterdir())[-1] for r in (run, other))
    weights = [load_file(path / "weights.safetensors") for path in (first, second)]
    for name, tensor in weights[0].items():
        assert torch.allclose(tensor, weights[1][name], rtol=1e-5, atol=1e-6), name
    confusions = [json.loads((r / "result.json").read_text())["confusion"] for r in (run, other)]
    assert np.array_equal(*confusions)


@needs_gloo
def test_two_processes_are_one(tmp_path):
    """32 cases in batches of 31: in the second batch, one process has nothing."""
    one = train(settings(), root=tmp_path)
    environment = dict(os.environ)  # after what imports set in it
    two = train(settings(devices=2), root=tmp_path)
    assert dict(os.environ) == environment
    assert not distributed.is_initialized()
    assert min(line["ksvd_loss"] for line in read_metrics(one.run)) > 0
    assert_same(two.run, one.run)


@needs_gloo
@pytest.mark.slow
def test_two_processes_resume_to_the_last_bit(tmp_path, stop_at, outcome):
    changes = {"devices": 2, "dropout": 0.2, "epochs": 3, "precision": "32-true"}
    with pytest.raises(KeyboardInterrupt):
        train(settings(**changes), root=tmp_path, name="run", observer=stop_at(2))
    resume(tmp_path / "run")
    whole = train(settings(**changes), root=tmp_path)
    assert outcome(tmp_path / "run") == outcome(whole.run)


@needs_gloo
@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_processes_stay_for_all_seeds(devices, tmp_path):
    if devices > (os.cpu_count() or 1):
        pytest.skip("more processes than cores are refused")
    changes = {"devices": devices, "epochs": 1, "attention": ("primal", "primal"), "batch_size": 7}
    many = train_seeds(settings(**changes), (0, 1), root=tmp_path)
    for seed, result in many.results.items():
        changes |= {"devices": 1, "seed": seed}
        assert_same(result.run, train(settings(**changes), root=tmp_path).run)


TORCHRUN = """
import json, sys
from primal_attention.train import RunConfig, is_main_process, resume, train
run = sys.argv[1]
if sys.argv[2] == "resume":
    result = resume(f"{run}/run")
else:
    result = train(RunConfig(**json.loads(sys.argv[2])), root=run, name="run")
if is_main_process():
    print("accuracy", result.accuracy)
"""


@needs_gloo
@pytest.mark.slow
def test_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TORCHRUN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    def run(argument):
        done = subprocess.run(
            [*command, str(script), str(tmp_path), argument],
            capture_output=True, text=True, timeout=200,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    one = train(settings(), root=tmp_path)
    expected = [f"accuracy {one.accuracy}"]
    assert run(json.dumps(SETTINGS)) == expected
    assert_same(tmp_path / "run", one.run)
    assert run("resume") == expected  # it is finished


@needs_gloo
@pytest.mark.slow
def test_a_process_that_dies_ends_the_run(tmp_path):
    class Murderer(Observer):
        def step(self, event):
            if event.step == 1:
                for child in Path("/proc/self/task").glob("*/children"):
                    for pid in child.read_text().split():
                        if launch.HELPER in Path(f"/proc/{pid}/cmdline").read_text():
                            os.kill(int(pid), signal.SIGKILL)

    with pytest.raises(RunError, match="a process of the run ended: "):
        train(settings(devices=2), root=tmp_path, observer=Murderer())
    assert not distributed.is_initialized()


DIES = """
import os
from torch import distributed
from primal_attention.train.helper import main
distributed.init_process_group = lambda *_, **__: os._exit(9)
main()
"""


@needs_gloo
@pytest.mark.slow
def test_a_process_that_dies_before_they_meet_ends_the_run(tmp_path, monkeypatch):
    (tmp_path / "dies_before.py").write_text(DIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launch, "HELPER", "dies_before")
    monkeypatch.setattr(launch, "MEETING_SECONDS", 2)
    began = time.monotonic()
    with pytest.raises(RunError, match="a process of the run ended: "):
        train(settings(devices=2), root=tmp_path / "runs")
    assert time.monotonic() - began < launch.PATIENCE_SECONDS + 60
    assert not distributed.is_initialized()
    monkeypatch.undo()
    again = train(settings(devices=2, epochs=1), root=tmp_path / "runs")
    assert again.status == "finished"


@needs_gloo
@pytest.mark.slow
def test_without_process_0_the_others_end(tmp_path):
    command = [sys.executable, "-m", launch.HELPER, "1", "1", json.dumps(settings().to_dict())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, input="", capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 1
    assert done.stdout.strip() == launch.READY
    assert done.stderr.strip().endswith("process 0 has ended")


LATE = """
import time
from primal_attention.train import helper
serve = helper.serve
helper.serve = lambda fabric: (time.sleep(8), serve(fabric))
helper.main()
"""


@needs_gloo
@pytest.mark.slow
def test_processes_that_have_met_wait_for_each_other(tmp_path, monkeypatch):
    """Only the time to meet is short."""
    (tmp_path / "late.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launch, "HELPER", "late")
    monkeypatch.setattr(launch, "MEETING_SECONDS", 5)
    result = train(settings(devices=2, epochs=1), root=tmp_path / "runs")
    assert result.status == "finished"


@needs_gloo
@pytest.mark.slow
def test_a_process_that_does_not_start_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "HELPER", "primal_attention.train.missing")
    with pytest.raises(RunError, match=r"a process of the run did not start: .*No module named"):
        train(settings(devices=2), root=tmp_path)


def test_what_cannot_be(tmp_path):
    with pytest.raises(RunError, match="nodes is 2; expected a start by torchrun"):
        train(settings(nodes=2), root=tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(RunError, match="accelerator 'cuda' with 1 devices cannot be used"):
            train(settings(accelerator="cuda"), root=tmp_path)
    with pytest.raises(RunError, match=r"devices is 9999; expected at most \d+, all that are"):
        train(settings(devices=9999), root=tmp_path)
    assert not list(tmp_path.iterdir())
