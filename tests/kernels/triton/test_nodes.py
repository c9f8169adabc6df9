"""The Triton kernels, forward, backward and J: by Triton's interpreter, and on a GPU if there is
one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow  # the interpreter takes numbers one by one
WORKER = Path(__file__).with_name("compare_worker.py")


@pytest.fixture(scope="module", params=["interpreter", "gpu"])
def found(request):
    pytest.importorskip("triton")
    if request.param == "gpu" and not torch.cuda.is_available():
        pytest.skip("no GPU is here")
    interpreted = "1" if request.param == "interpreter" else "0"
    environment = {**os.environ, "TRITON_INTERPRET": interpreted, "PRIMAL_TRITON": "1"}
    command = [sys.executable, str(WORKER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_case_ran_on_the_kernels(found):
    assert len(found) == 9
    assert {case["launches"] for case in found.values()} == {1}


def test_output_loss_and_gradients_are_those_of_the_reference(found):
    for name, case in found.items():
        most = 0.03 if "bfloat16" in name else 5e-6
        wrong = {key: error for key, error in case["errors"].items() if not error < most}
        assert not wrong, name
