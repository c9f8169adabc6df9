"""The demonstration, with tiny settings; and the long sequence, with a short one."""

import argparse
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"
GIVEN = argparse.Namespace(seconds=40.0, length=2048)
RIVALS = ("primal", "softmax", "linear", "none")


@pytest.fixture
def demo():
    return SimpleNamespace(**runpy.run_path(str(DEMO), run_name="demo"))


@pytest.fixture
def found():
    """What the three parts give: look-up, memory and time, the real set."""
    ends = dict(zip(RIVALS, (0.97, 0.05, 0.06, 0.06), strict=True))
    learned = {name: [[20.0, 300, a / 2], [40.0, 600, a]] for name, a in ends.items()}
    sizes = {1024: (2.0, 0.01), 16384: (80.0, 0.2)}
    result = {"accuracy": 0.9, "confusion": [[20, 5], [0, 15]], "label": "test accuracy of it"}
    return learned, dict.fromkeys(RIVALS[:3], sizes), dict.fromkeys(RIVALS, result)


def test_nothing_is_overwritten(demo, tmp_path):
    wanted = tmp_path / "runs" / "demo"
    assert demo.new_folder(wanted) == wanted
    (wanted / "mine.txt").write_text("precious")
    assert demo.new_folder(wanted) == tmp_path / "runs" / "demo-2"
    assert demo.new_folder(wanted) == tmp_path / "runs" / "demo-3"
    assert (wanted / "mine.txt").read_text() == "precious"


def test_the_table_has_every_figure_and_what_it_is(demo, found, capsys):
    demo.show(*found)
    out = capsys.readouterr().out
    for text in ("97 %", "5 %", "600", "80", "200", "90.0 %", "test accuracy of it, 40 cases"):
        assert text in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_verdict_says_what_was_seen_whatever_it_is(demo, found):
    learned, *_ = found
    said = demo.verdict(learned, GIVEN)
    assert "primal finds the one of 2,048 positions in 97 %" in said
    assert "NOT" not in said
    learned["softmax"][-1][2] = 0.99
    assert "NOT ahead" in demo.verdict(learned, GIVEN)
    learned["softmax"][-1][2] = 0.05
    learned["none"][-1][2] = 0.96
    assert "shows nothing" in demo.verdict(learned, GIVEN)


def test_one_picture(demo, found, tmp_path):
    pytest.importorskip("matplotlib")
    picture = demo.draw(*found, GIVEN, tmp_path)
    assert Path(picture).read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_the_demo_learns_measures_trains_and_draws(tmp_path):
    words = ["--seconds", "1", "--length", "64", "--epochs", "1", "--out", str(tmp_path / "demo")]
    done = subprocess.run(
        [sys.executable, str(DEMO), *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    for name in RIVALS:
        points = json.loads((tmp_path / "demo" / f"lookup-{name}.json").read_text())["points"]
        assert points[-1][0] >= 1.0
    assert (tmp_path / "demo" / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert "What to try next" in done.stdout


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
