"""Three models on JapaneseVowels, with tiny settings."""

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "japanese_vowels.py"


@pytest.fixture
def demo():
    return SimpleNamespace(**runpy.run_path(str(DEMO), run_name="demo"))


def start(out, **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PRIMAL_ATTENTION_DATA": "/nowhere"}
    return subprocess.Popen(
        [sys.executable, str(DEMO), "--width", "16", "--out", str(out), "--epochs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        # ignored in what a shell started in the background, and inherited
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_the_table_has_every_figure_and_its_label(demo, capsys):
    result = {
        "accuracy": 0.9, "epoch": 3, "parameters": 12345, "seconds": 1.5, "peak_memory_mb": 321.4,
        "confusion": [[45, 5], [5, 45]], "label": "test accuracy of it", "protocol": "holdout",
    }  # fmt: skip
    demo.show({"One": result, "Two": result | {"accuracy": 0.5}})
    out = capsys.readouterr().out
    for text in ("One", "90.0 %", "50.0 %", "12,345", "1.5", "321", "test accuracy of it"):
        assert text in out
    assert "holdout protocol" in out
    assert "100 test series: +-5.9 points" in out


@pytest.mark.slow
def test_demo_trains_compares_and_draws(tmp_path):
    out = tmp_path / "runs" / "demo"
    process = start(out)
    printed, progress = process.communicate(timeout=240)
    assert process.returncode == 0, progress
    for model in ("PrimalFormer", "Primal.+Trans.", "Transformer"):
        assert model in printed
        result = json.loads((out / model / "result.json").read_text())
        assert result["protocol"] == "holdout"
        assert (out / model / "curves.png").exists()
    assert (out / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    assert str(out / "comparison.png") in printed
    assert "What to try next" in printed
    assert "epoch 1/1" in progress


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_cleanly(tmp_path):
    process = start(tmp_path / "demo")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("uea/"):  # the first run has begun
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in rest
    assert "Traceback" not in rest
