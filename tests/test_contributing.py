"""The example in CONTRIBUTING.md works, and keeps what every attention promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import primal_attention
from primal_attention import attention_info, available_attentions, make_attention
from primal_attention.attention import registry

ROOT = Path(__file__).parents[1]
NAME = "mean_pool"


def example() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, "one block of Python, the example"
    return blocks[0]


@pytest.fixture
def registered(monkeypatch):
    """The example, run as the file in the package that it claims to be; gone after the test."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    package = "primal_attention.attention"
    code = compile(example(), "CONTRIBUTING.md", "exec")
    exec(code, {"__name__": f"{package}.{NAME}", "__package__": package})


@pytest.mark.usefixtures("registered")
def test_the_example_does_what_it_says():
    assert NAME in available_attentions()
    assert attention_info(NAME).cost == "O(N)"
    torch.manual_seed(0)
    layer = make_attention(NAME, 8, 2, dtype=torch.float64)
    x, y = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    ignore = torch.arange(7) >= torch.tensor([[7], [3]])
    out, _ = layer(x, y, key_padding_mask=ignore)
    for i, n in enumerate((7, 3)):
        values = torch.nn.functional.linear(
            y[i, :n], layer.in_proj_weight[16:], layer.in_proj_bias[16:]
        )
        expected = layer.out_proj(values.mean(0))
        assert_close(out[i], expected.expand(5, 8))


def test_the_example_leaves_no_name_behind():
    assert NAME not in available_attentions()


def test_the_example_passes_the_sweep(tmp_path):
    """In a process of its own: the sweep finds its cases when it is imported."""
    package = "primal_attention.attention"
    (tmp_path / "with_example.py").write_text(
        "import primal_attention.attention\n"
        f"code = compile({example()!r}, 'CONTRIBUTING.md', 'exec')\n"
        f"exec(code, {{'__name__': '{package}.{NAME}', '__package__': '{package}'}})\n",
        encoding="utf-8",
    )
    source = Path(primal_attention.__file__).parents[1]
    paths = [str(tmp_path), str(source), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "with_example", "-p", "no:cacheprovider"]
    command += ["-k", NAME, "tests/attention/test_sweep.py", "tests/attention/test_registry.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout[-500:]
    assert int(passed[1]) > 25


def test_files_and_commands_in_the_text_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:src|tests)/[\w/]+\.(?:py|md)", text)) - {f"src/{NAME}.py"}
    assert len(named) >= 6
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"(?:^ +|`)make ([a-z-]+)", text, re.MULTILINE))
    assert len(targets) >= 4
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [t for t in sorted(targets) if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []
