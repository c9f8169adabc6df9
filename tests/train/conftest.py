"""Small runs that take a fraction of a second."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from primal_attention.train import Observer, RunConfig, read_metrics, train

TINY = Path(__file__).with_name("tiny_task.py")
_spec = importlib.util.spec_from_file_location("tiny_task", TINY)
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)


@pytest.fixture(autouse=True)
def task():
    """The tiny task, registered; `task.loads` are the splits that were read."""
    from primal_attention import tasks

    before = dict(tasks._tasks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny.register()
    torch.set_num_threads(threads)
    tasks._tasks.clear()
    tasks._tasks.update(before)


@pytest.fixture
def config():
    """Makes the settings of a small run."""
    return lambda **changes: RunConfig(**(tiny.SETTINGS | changes))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The folder of a small run that nothing happened to."""
    from primal_attention import tasks

    tiny.register()
    torch.set_num_threads(1)
    run = train(RunConfig(**tiny.SETTINGS), root=tmp_path_factory.mktemp("runs")).run
    del tasks._tasks[tiny.NAME]  # made before the fixture `task`, which would keep it
    return run


class StopAt(Observer):
    """Interrupts a run after a step, as Ctrl-C would."""

    def __init__(self, step):
        self.at = step

    def step(self, event):
        if event.step == self.at:
            raise KeyboardInterrupt


@pytest.fixture
def stop_at():
    return StopAt


@pytest.fixture
def outcome():
    return read_outcome


def read_outcome(run):
    """All that a finished run has computed, without times: weights as bytes, metrics, result."""
    last = sorted((run / "checkpoints").iterdir())[-1]
    metrics = [{k: v for k, v in line.items() if k != "seconds"} for line in read_metrics(run)]
    result = json.loads((run / "result.json").read_text())
    times = ("seconds", "peak_memory_mb")
    return {
        "weights": (last / "weights.safetensors").read_bytes(),
        "optimizer": (last / "optimizer.safetensors").read_bytes(),
        "best": (run / "best.safetensors").read_bytes(),
        "best.json": (run / "best.json").read_text(),
        "metrics": metrics,
        "result": {k: v for k, v in result.items() if k not in times},
    }
