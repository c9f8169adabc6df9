"""Two processes with half of the batch each give the gradients of one process with all of it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.testing import assert_close

WORKER = Path(__file__).with_name("data_parallel_worker.py")
_spec = importlib.util.spec_from_file_location("data_parallel_worker", WORKER)
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="needs gloo"
)


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """Gradients of both ranks in all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, WORKER, folder], env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "find_unused"),
    [(case, unused) for case in worker.cases() for unused in worker.UNUSED[case[0] == "tied"]],
    ids=str,
)
def test_gradients_are_those_of_one_process(case, find_unused, parallel):
    expected = worker.gradients(*case, slice(None), lambda model: model)
    first, second = (rank[*case, find_unused] for rank in parallel)
    assert expected.pop("left") == first.pop("left") == second.pop("left") == 0
    assert_close(first, second, rtol=0, atol=0)
    assert_close(first, expected, rtol=1e-10, atol=1e-12)
    used = first["layers.0.sqrt_lambda"].abs().sum() > 0
    assert used == (case[2] > 0)
