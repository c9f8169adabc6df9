"""Wheels, each installed in an environment that has nothing else of the project."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from primal_attention.kernels.native.build import has_compiler

ROOT = Path(__file__).parents[2]
SMOKE = """
import json, torch
import primal_attention as pa
from primal_attention.kernels.native import library
torch.manual_seed(0)
layer, x = pa.PrimalAttention(24, 2, rank=5), torch.randn(2, 50, 24, requires_grad=True)
found = []
for layer.fast in (True, False):
    out, _ = layer(x)
    loss = out.square().sum() + pa.ksvd_loss(layer)
    found.append([out, *torch.autograd.grad(loss, [x, *layer.parameters()])])
pairs = list(zip(*found))
print(json.dumps({
    "package": pa.__file__,
    "kernels": library.kernels() and library.kernels().library._name,
    "error": max(((a - b).norm() / (1e-6 + b.norm())).item() for a, b in pairs),
}))
"""


def run(*command, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PRIMAL"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=variables.pop("cwd", None), check=False,
        env=environment | variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def installed(tmp_path):
    """Install a wheel; torch and the other packages are those of this environment."""

    def install(wheel):
        place = tmp_path / "clean"
        run(sys.executable, "-m", "venv", place)
        site = next(place.glob("lib/python*/site-packages"), place / "Lib" / "site-packages")
        (site / "others.pth").write_text(sysconfig.get_path("purelib"))
        binaries = place / Path(sysconfig.get_path("scripts")).name
        run(binaries / "python", "-m", "pip", "install", "--no-deps", "--no-index", wheel)
        return place, binaries

    return install


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["pure", "own"])
def test_in_a_clean_environment(chosen, installed, tmp_path):
    if chosen == "own" and not has_compiler():
        pytest.skip("no C++ compiler")
    variables = {"PRIMAL_WHEEL": "pure"} if chosen == "pure" else {}
    source = tmp_path / "source"
    names = run("git", "-C", ROOT, "ls-files", "-z").split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    run(*command, tmp_path / "dist", source, **variables)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert ("py3-none-any" in wheel.name) == (chosen == "pure")
    place, binaries = installed(wheel)
    found = json.loads(run(binaries / "python", "-c", SMOKE, cwd=tmp_path))
    assert found["package"].startswith(str(place))
    assert found["error"] < 1e-4
    listed = run(binaries / "primal", "list", cwd=tmp_path)
    if chosen == "pure":
        assert found["kernels"] is None
        assert "native kernels: not compiled" in listed
    else:
        assert found["kernels"].startswith(str(place))
        assert "not compiled" not in listed
