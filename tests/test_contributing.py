"""The recipe of CONTRIBUTING.md, followed to the letter: one file makes an attention."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import primal_attention

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAME = "mean_pool"


def example() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, "one block of Python, the example"
    return blocks[0]


# the file is an attention of the package
FORMULA = """
import torch
from torch.nn.functional import linear
import primal_attention as pa

assert "mean_pool" in pa.available_attentions()
assert "MeanPoolAttention" in dir(pa) and "MeanPoolAttention" in pa.__all__
info = pa.attention_info("mean_pool")
assert info.build is pa.MeanPoolAttention and info.cost == "O(N)"
facts = (info.causal, info.cross, info.streaming, info.any_length, info.pair_masks)
assert facts == (False, True, False, True, False)

layer = pa.make_attention("mean_pool", 8, 2, scale=2.0, dtype=torch.float64)
x, y = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
out, _ = layer(x, y, key_padding_mask=torch.arange(7) >= torch.tensor([[7], [3]]))
for i, n in enumerate((7, 3)):
    values = linear(y[i, :n], layer.in_proj_weight[16:], layer.in_proj_bias[16:])
    torch.testing.assert_close(out[i], layer.out_proj(2 * values.mean(0)).expand(5, 8))
"""

# the commands know it; what a step takes is not what this is about
COMMANDS = """
import json, os, tempfile
from typer.testing import CliRunner
from primal_attention.bench.memory import MemoryMeter, Peak
from primal_attention.cli.app import app

MemoryMeter.peak = lambda *job, **options: Peak(5.0, 1e-6)
os.chdir(tempfile.mkdtemp(dir=os.environ["PYTHONPATH"]))

def primal(*words):
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)

listed = {row["name"]: row for row in primal("list")["attentions"]}
assert "scale" in listed["mean_pool"]["options"]
(row,) = primal("cost", "--attention", "mean_pool", "--lengths", "1k")["attentions"]
assert row["costs"][0]["flops"] == 8 * 1000 * 512**2
small = ("--width", "16", "--lengths", "16", "--pass", "forward", "--repeats", "1", "--quiet")
cells = primal("bench", "--attention", "mean_pool:scale=2", *small)["cells"]
assert ("mean_pool:scale=2", "measured") in [(c["candidate"], c["status"]) for c in cells]
"""

# it keeps what every attention promises
PROMISES = f"""
import os, sys, pytest
os.chdir({str(ROOT)!r})
files = ["attention/test_sweep.py", "attention/test_registry.py", "attention/test_page.py",
         "analysis/test_cost.py"]
words = ["-q", "-p", "no:cacheprovider", "-k", {NAME!r}]
sys.exit(pytest.main([*words, *("tests/" + file for file in files)]))
"""


def test_one_file_makes_an_attention(tmp_path):
    """In one process, with a copy of the package to which the file was added, and nothing else."""
    pytest.importorskip("typer")
    shutil.copytree(Path(primal_attention.__file__).parent, tmp_path / "primal_attention")
    added = tmp_path / "primal_attention" / "attention" / f"{NAME}.py"
    assert not added.exists()
    added.write_text(example(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", FORMULA + COMMANDS + PROMISES], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout[-500:]
    assert int(passed[1]) > 30


def test_the_file_is_nowhere_else():
    assert NAME not in primal_attention.available_attentions()


def test_files_and_commands_in_the_text_exist():
    named = set(re.findall(r"(?:src|tests)/[\w/]+\.(?:py|md)", TEXT)) - {f"src/{NAME}.py"}
    assert len(named) >= 6
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"(?:^ +|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert len(targets) >= 4
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [t for t in sorted(targets) if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []
