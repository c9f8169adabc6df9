"""The script that times agents."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "agents.py"


@pytest.mark.slow
def test_short_contexts(monkeypatch, capsys):
    words = ["--contexts", "1", "10", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()[4:]
    assert [row.split("|")[2].strip() for row in rows] == ["1", "10"] * 3
