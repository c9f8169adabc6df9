"""`primal predict` of events and rows: from a table to predictions in two commands, the report."""

import csv
import io


def test_events_from_a_table_to_predictions(primal, event_run, tmp_path):
    run, table = event_run, tmp_path / "log.csv"
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


def test_rows_from_a_table_to_predictions(primal, tiny, people, tmp_path):
    done = primal(
        "train", "table/csv", "--data", people, "--target", "out", "--id", "name", "--width", 16,
        "--heads", 2, "--feedforward", 16, "--rank", 4, "--epochs", 2, "--name", "p",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "120 rows, 1 number, 1 category (city), 1 date (since); 'out' has 2 classes" in done.err
    assert "the most frequent class, always" in done.out
    assert "--target out --id name" in done.out  # the command that goes on
    run = tmp_path / "runs" / "p"
    shown = primal("predict", run, people)
    assert shown.code == 0, shown.err
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [row["case"] for row in rows[:3]] == ["r0", "r1", "r2"]
    assert set(rows[0]) == {"case", "prediction", "p(no)", "p(yes)"}
    timed = primal("predict", run, people, "--time", "since")
    assert timed.code != 0
    assert "expected no --time" in timed.err
    wrong = primal("train", "table/csv", "--data", people, "--target", "ot")
    assert wrong.code == 2
    assert "has no column 'ot' for --target" in wrong.err
    page = primal("report", run, "--out", "page.html", "--no-spectrum")
    assert page.code == 0, page.err
    said = {"spectrum": "learned no label a case", "calibrate": "in the light of a table"}
    for command, words in said.items():
        refused = primal(command, run)
        assert refused.code != 0
        assert words in refused.err
