"""Figures: they exist, are images, say what they show, and are never half written."""

import struct
import sys
from xml.etree import ElementTree

import pytest

from primal_attention.report import compare, confusion, curves, read_run
from primal_attention.train import RunError

pytest.importorskip("matplotlib")


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


def svg_words(path):
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter() if e.text)


def test_curves_are_written_into_the_run(run):
    png, svg = curves(run)
    assert (png, svg) == (run / "curves.png", run / "curves.svg")
    width, height = png_size(png)
    assert width > height > 100
    words = svg_words(svg)
    for text in ("holdout protocol", "Task loss", "KSVD loss", "Validation accuracy", "86.7 %"):
        assert text in words
    assert "accuracy chosen on validation" in words


def test_paper_protocol_shows_test_accuracy(tmp_path, write_run):
    words = svg_words(curves(write_run(tmp_path / "run", protocol="paper"), formats=("svg",))[0])
    assert "paper protocol" in words
    assert "Test accuracy" in words


def test_without_primal_layers_the_ksvd_panel_says_so(tmp_path, write_run):
    run = write_run(tmp_path / "run", attention=("softmax", "softmax"))
    assert "no primal layer" in svg_words(curves(run, formats=("svg",))[0])


def test_a_single_epoch_is_enough(tmp_path, write_run):
    run = write_run(tmp_path / "run", epochs=3)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[1])
    png_size(curves(run, formats=("png",))[0])


@pytest.mark.slow
def test_epochs_of_a_number_of_steps_are_counted_in_steps(tmp_path, write_run):
    run = write_run(tmp_path / "run", epoch_steps=250)
    words = svg_words(curves(run, formats=("svg",))[0]).split()
    assert {"step", "2000"} <= set(words)  # the axis and a tick
    passes = write_run(tmp_path / "passes")
    words = svg_words(compare({"a": run, "b": passes}, tmp_path / "both", formats=("svg",))[0])
    assert "step" not in words.split()


def test_confusion_shows_all_counts(run):
    png, svg = confusion(run)
    png_size(png)
    words = svg_words(svg).split()
    for count in ("9", "8", "2", "1", "3"):
        assert count in words
    assert "0" not in words, "zeros stay empty"


def test_only_the_formats_asked_for(run):
    assert confusion(run, formats=("svg",)) == [run / "confusion.svg"]
    assert not (run / "confusion.png").exists()


def test_compare_names_every_run(tmp_path, write_run):
    kinds = {"PrimalFormer": ("primal", "primal"), "Transformer": ("softmax", "softmax")}
    runs = {n: write_run(tmp_path / n, attention=kind) for n, kind in kinds.items()}
    (small,) = compare(runs, tmp_path / "curves", formats=("svg",))
    words = svg_words(small)
    assert "PrimalFormer" in words
    assert "predicted" not in words
    (svg,) = compare(runs, tmp_path / "both", matrices=True, formats=("svg",))
    words = svg_words(svg)
    assert "Transformer: 86.7 %" in words
    assert "predicted" in words
    assert "holdout protocol" in words


@pytest.mark.slow
def test_compare_takes_more_runs_than_colours(tmp_path, write_run):
    runs = {f"run {i}": write_run(tmp_path / f"{i}") for i in range(8)}
    assert "run 7" in svg_words(compare(runs, tmp_path / "all", formats=("svg",))[0])


def test_compare_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no run"):
        compare({}, tmp_path / "x")


def test_the_same_run_gives_the_same_svg(run):
    first = confusion(run, formats=("svg",))[0].read_bytes()
    assert confusion(run, formats=("svg",))[0].read_bytes() == first


def test_a_failure_leaves_the_old_figure_and_no_other_file(run, monkeypatch):
    old = confusion(run, formats=("png",))[0].read_bytes()
    before = sorted(path.name for path in run.iterdir())

    def fail(self, path, **_options):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="No space"):
        confusion(run, formats=("png",))
    assert sorted(path.name for path in run.iterdir()) == before
    assert (run / "confusion.png").read_bytes() == old


def test_the_callers_settings_are_not_touched(run):
    import matplotlib

    before = dict(matplotlib.rcParams)
    confusion(run, formats=("png",))
    assert dict(matplotlib.rcParams) == before


def test_missing_matplotlib_is_one_sentence(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"install 'primal-attention\[plot\]'"):
        curves(run)


def test_an_unfinished_run_is_refused(run):
    (run / "result.json").unlink()
    with pytest.raises(RunError, match="finished run"):
        read_run(run)


def test_a_run_without_epochs_is_refused(run):
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no epoch"):
        read_run(run)


def test_a_half_written_last_line_is_ignored(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"kind": "epo')
    assert list(read_run(run).values) == list(range(1, 13))
