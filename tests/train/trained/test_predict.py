"""A file of new cases becomes a file of predictions, a few cases at a time."""

import csv
import io
import tracemalloc

import pytest

pytest.importorskip("lightning_fabric")

import primal_attention as pa
from primal_attention.tasks.base import DataError
from primal_attention.train.trained import model as model_module
from primal_attention.train.trained.predict import predict_file


def test_a_line_for_each_case(own_run, sensors):
    model, out = pa.load_run(own_run), io.StringIO()
    assert predict_file(model, sensors, out) == 24
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["case"] for row in rows] == [f"m{i}" for i in range(24)]
    expected = model.predict_proba(sensors)
    for row, sure in zip(rows, expected, strict=True):
        assert float(row["p(ok)"]) == pytest.approx(sure[0], abs=1e-6)
        assert row["prediction"] == ("ok" if sure[0] > sure[1] else "worn")


def test_pieces_do_not_change_the_answers(own_run, sensors, monkeypatch):
    model = pa.load_run(own_run)
    whole = model.predict_proba(sensors)
    monkeypatch.setattr(model_module, "TOGETHER", 5)
    told = []
    predict_file(model, sensors, io.StringIO(), tell=told.append)
    assert told == [5, 10, 15, 20, 24]
    assert model.predict_proba(sensors) == pytest.approx(whole, abs=1e-6)


def test_memory_does_not_grow_with_the_file(own_run, tmp_path, monkeypatch):
    """Twenty times as many cases: the most that Python held stays the same."""
    monkeypatch.setattr(model_module, "TOGETHER", 8)
    model = pa.load_run(own_run)

    def most(cases):
        path = tmp_path / f"{cases}.csv"
        with open(path, "w") as file:
            file.write("machine,at,vibration,current\n")
            file.writelines(f"m{i},{t},1.0,2.0\n" for i in range(cases) for t in range(12))
        tracemalloc.start()
        with open(tmp_path / "out.csv", "w") as out:
            predict_file(model, path, out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    most(40)  # caches
    few, many = most(40), most(800)
    # names of the cases are remembered, some 200 bytes each; the rows would be 2 MB
    assert many < few + 400_000


def test_rows_of_a_case_must_be_together(own_run, tmp_path):
    path = tmp_path / "apart.csv"
    path.write_text("machine,at,vibration,current\na,0,1,1\nb,0,1,1\na,1,1,1\n")
    with pytest.raises(DataError, match="line 4: the rows of 'a' are not together"):
        predict_file(pa.load_run(own_run), path, io.StringIO())
