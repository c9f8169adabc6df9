"""For all tests: what a busy machine, or a virtual one, needs."""

import csv
import gc
import math
import multiprocessing
import os
import random
import runpy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Some virtual machines report AMX and then refuse its instructions: torch would die in bfloat16.
# Set before torch is imported; child processes inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# The workers of a run share the cores: with a thread for every core in every worker they would
# wait for each other most of the time. Tests that are about threads set their number themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# On a busy machine an example of hypothesis may take its time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Modules and collected tests are millions of objects that stay: the garbage collector would walk
# through all of them again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def seeds_without_stacks():
    """Without a GPU `torch.manual_seed` keeps the whole stack for each kind of GPU that might come
    later: milliseconds, in thousands of tests."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        if not torch.accelerator.is_available():
            seed = torch.default_generator.manual_seed
            patch.setattr(torch.random, "_manual_seed_impl", seed, raising=False)
        yield


# -- one's own data: a csv file with series, and a run that was trained on it ----------------------

SMALL = {"width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 1}


def write_sensors(path: Path, cases: int = 24, *, seed: int = 0) -> Path:
    """A long table: machine, at, vibration, current, state; series of 8 to 12 positions."""
    rng = random.Random(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["machine", "at", "vibration", "current", "state"])
        for i in range(cases):
            state, pace = ("ok", 0.3) if i % 2 else ("worn", 0.9)
            for t in range(8 + i % 5):
                values = math.sin(pace * t) + 0.1 * rng.gauss(0, 1), rng.gauss(2, 3)
                writer.writerow([f"m{i}", t, *(f"{v:.4f}" for v in values), state])
    return path


@pytest.fixture(scope="session")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The csv file."""
    return write_sensors(tmp_path_factory.mktemp("own") / "sensors.csv")


@pytest.fixture(scope="session")
def own_run(sensors: Path) -> Path:
    """The folder of a small run on it."""
    pytest.importorskip("lightning_fabric")
    from primal_attention.train import train
    from primal_attention.train.config import settings_for

    where = {"data": str(sensors), "target": "state", "id": "machine", "time": "at"}
    config = settings_for("", ("primal",), **where, **SMALL)
    return train(config, root=sensors.parent / "runs", name="sensors").run


# -- a table of rows ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def people(tmp_path_factory) -> Path:
    """A csv file whose rows are cases: numbers, categories and dates, some of them missing. The
    class follows from two columns."""
    draw = random.Random(0)
    lines = ["name,age,city,since,out"]
    for i in range(120):
        age, city = draw.gauss(40, 10), draw.choice(["ulm", "bonn", "kiel"])
        high = 0.1 * (age - 40) + {"ulm": 1.0, "bonn": -1.0, "kiel": 0.0}[city] > 0
        shown = [f"{age:.2f}" if i % 19 else "", city if i % 17 else "NA"]
        lines.append(f"r{i},{','.join(shown)},2026-01-{1 + i % 28:02d},{'yes' if high else 'no'}")
    path = tmp_path_factory.mktemp("people") / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def table_run(people: Path) -> Path:
    """The folder of a small run on it."""
    pytest.importorskip("lightning_fabric")
    from primal_attention.train import train
    from primal_attention.train.config import settings_for

    small = {"width": 16, "heads": 2, "feedforward": 16, "rank": 4, "frequencies": 2, "epochs": 3}
    where = {"data": str(people), "target": "out", "id": "name"}
    config = settings_for("table/csv", **where, **small)
    return train(config, root=people.parent / "runs", name="people").run


# -- runs that can be killed -----------------------------------------------------------------------


@pytest.fixture
def start():
    """Starts a real process that trains or resumes a run; it can be killed."""
    context = multiprocessing.get_context("forkserver")
    # the server has everything imported but never computed, so its forks start at once
    context.set_forkserver_preload(["primal_attention.train.session", "primal_attention.train"])
    script = Path(__file__).parent / "train" / "tiny_task.py"

    def begin(run, changes=None, kill_at=None):
        given = {"RUN": str(run), "CHANGES": changes or {}, "KILL_AT": kill_at}
        process = context.Process(target=runpy.run_path, args=(str(script), given, "__main__"))
        process.start()
        return process

    return begin
