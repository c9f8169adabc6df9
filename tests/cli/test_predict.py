"""`primal predict` of events: from a table to predictions in two commands, and the report."""

import csv
import io

import numpy as np
import pytest


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["sequence,time,type"]
    for number in range(20):
        times = 1e9 + np.cumsum(rng.exponential(size=8))
        lines += [f"u{number},{t:.3f},{'ab'[(number + i) % 2]}" for i, t in enumerate(times)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_events_from_a_table_to_predictions(primal, tiny, table, tmp_path):  # `tiny`: no pictures
    done = primal(
        "train", "events/csv", "--data", table, "--width", 16, "--feedforward", 16, "--epochs", 2,
        "--rank", 4, "--quiet", "--name", "e",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "majority" in done.out
    run = tmp_path / "runs" / "e"
    shown = primal("predict", run, table)
    assert shown.code == 0, shown.err
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert len(rows) == 20
    assert set(rows[0]) >= {"sequence", "next type", "time at 50 %", "p(a)", "p(b)"}
    written = primal("predict", run, table, "--out", "p.csv")
    assert written.code == 0
    assert (tmp_path / "p.csv").read_text() == shown.out
    table.write_text("sequence,time,type\nu,1,z\n")
    unknown = primal("predict", run, table)
    assert unknown.code != 0
    assert "has the type 'z', which the model does not know; expected one of a, b" in unknown.err
    told = primal("predict", run, table, "--id", "sequence")
    assert told.code == 2

    page = primal("report", run, "--out", "page.html", "--no-spectrum")
    assert page.code == 0, page.err
    html = (tmp_path / "page.html").read_text()
    for words in ("What happens next", "Calibration of the gaps", "One sequence in time"):
        assert words in html
