"""The demonstration, with tiny settings; and the long sequence, with a short one."""

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
DEMO = ROOT / "examples" / "demo.py"


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
        **options,
    )


def test_nothing_is_overwritten(demo, tmp_path):
    wanted = tmp_path / "runs" / "demo"
    assert demo.new_folder(wanted) == wanted
    (wanted / "mine.txt").write_text("precious")
    assert demo.new_folder(wanted) == tmp_path / "runs" / "demo-2"
    assert demo.new_folder(wanted) == tmp_path / "runs" / "demo-3"
    assert (wanted / "mine.txt").read_text() == "precious"


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
    assert (out / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert str(out / "demo.png") in printed
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


@pytest.mark.slow
def test_long_sequence_draws_its_picture(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    names = runpy.run_path(str(ROOT / "examples" / "long_sequence.py"), run_name="long_sequence")
    main = names["main"]
    for name, value in {"LENGTH": 400, "LENGTHS": (200, 400)}.items():
        monkeypatch.setitem(main.__globals__, name, value)
    monkeypatch.setattr(sys, "argv", ["long_sequence.py", "--out", str(tmp_path)])
    main()
    assert (tmp_path / "long_sequence.png").exists()
    assert "400 x 400" in capsys.readouterr().out
