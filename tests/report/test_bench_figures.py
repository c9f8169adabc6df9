"""Figures of benchmarks: they exist, are images, and say what they show."""

from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from primal_attention.bench import Cell, Results, Settings
from primal_attention.report.bench_figures import bubbles, drawn, growth
from primal_attention.train import RunError

NAMES = ("floor", "softmax", "softmax:materialised", "primal:data", "primal:tied")
LENGTHS = (512, 1024, 2048)


def words(path):
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter() if e.text)


@pytest.fixture
def folder(tmp_path):
    """A benchmark in which materialised softmax ends early and primal:data raises at the end."""
    powers = dict(zip(NAMES, (1.0, 2.0, 2.0, 1.0, 1.1), strict=True))
    results = Results(Settings(), NAMES, LENGTHS, 10.0, "primal bench", {})
    for name, power in powers.items():
        for length in LENGTHS:
            seconds = 1e-6 * length**power
            results.cells[name, length] = Cell(
                name, length, "measured", None, seconds, 1.0, 1.0, 0.01 * length, (seconds,)
            )
    for length in LENGTHS[1:]:
        results.cells[NAMES[2], length] = Cell(NAMES[2], length, "memory", "too large")
    results.cells[NAMES[3], 2048] = Cell(NAMES[3], 2048, "error", "ValueError: no")
    results.write(tmp_path)
    return tmp_path


def test_growth(folder):
    png, svg = growth(folder)
    assert (png, svg) == (folder / "growth.png", folder / "growth.svg")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = words(svg)
    for name in NAMES:
        assert name in text
    for shown in ("softmax  2.00", "primal:tied  1.10", "Time, ms", "Peak memory", "width 64"):
        assert shown in text
    assert {path.name for path in folder.iterdir()} == {"results.json", "growth.png", "growth.svg"}


def test_at_most_six_lines_and_the_rest_is_named(folder):
    many = (*NAMES, "linear", "none", "primal:tied,rank=4")
    assert drawn(many) == [
        "floor", "softmax", "softmax:materialised", "primal:data", "primal:tied", "linear",
    ]  # fmt: skip
    assert drawn(("none", "soft", "linear", "floor", "cosformer", "yoso", "primal", "softmax")) == [
        "none", "soft", "linear", "floor", "primal", "softmax",
    ]  # fmt: skip
    results = Results(Settings(), many, (64,), 1.0, "primal bench", {})
    for name in many:
        results.cells[name, 64] = Cell(name, 64, "measured", None, 1e-3, 1.0, None, 1.0, (1e-3,))
    results.write(folder)
    assert "Not drawn: none, primal:tied,rank=4" in words(growth(folder, formats=("svg",))[0])


def test_one_length_is_enough(folder):
    results = Results(Settings(), ("floor",), (64,), 1.0, "primal bench", {})
    results.cells["floor", 64] = Cell("floor", 64, "measured", None, 1e-3, 1.0, None, 0.0, (1e-3,))
    results.write(folder)
    assert "floor" in words(growth(folder, formats=("svg",))[0])


def test_nothing_measured_is_an_error(folder):
    results = Results(Settings(), ("floor",), (64,), 1.0, "primal bench", {})
    results.cells["floor", 64] = Cell("floor", 64, "error", "ValueError: no")
    results.write(folder)
    with pytest.raises(RunError, match="has no measured time"):
        growth(folder)


def test_bubbles(folder):
    accuracies = {"softmax": 98.0, "primal:data": 97.0, "primal:tied": 98.5}
    png, svg = bubbles(folder, accuracies)
    assert (png, svg) == (folder / "bubbles.png", folder / "bubbles.svg")
    text = words(svg)
    # primal:data has no time at 2048, so 1024 is the longest length that all three reached
    assert "sequences per second at N = 1024" in text
    for shown in ("softmax, 10.2 MB", "primal:data, 10.2 MB", "primal:tied", "accuracy, %"):
        assert shown in text
    assert "materialised" not in text


def test_bubbles_need_an_accuracy(folder):
    with pytest.raises(RunError, match="no candidate has both an accuracy and a time"):
        bubbles(folder, {"primal:free": 90.0})
