"""`primal predict` of events: from a table to predictions in two commands, and the report."""

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
