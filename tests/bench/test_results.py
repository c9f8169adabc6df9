"""What is written: JSON that is read again, CSV, and a table with reasons."""

import csv
import io
import json

import pytest

from primal_attention.bench import read_results
from primal_attention.bench.results import short
from primal_attention.bench.table import reasons, summary
from primal_attention.train import RunError


def test_json_is_read_again(results, tmp_path):
    results.write(tmp_path)
    assert read_results(tmp_path) == results
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["command"].startswith("primal bench")
    assert found["environment"]["processor"] == "a CPU"
    assert found["settings"]["width"] == 64
    assert found["exponents"]["softmax"]["seconds"] == pytest.approx(2.0)
    assert found["exponents"]["floor"]["seconds"] == pytest.approx(1.0)
    assert len(found["cells"]) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]  # nothing beside it


def test_csv_has_a_row_for_each_cell(results):
    rows = list(csv.DictReader(io.StringIO(results.csv())))
    assert [(row["candidate"], int(row["length"])) for row in rows] == [
        (name, length) for name in results.candidates for length in results.lengths
    ]
    row = rows[3]
    assert (row["candidate"], row["status"], row["reason"]) == ("softmax", "measured", "")
    assert float(row["seconds"]) == pytest.approx(1e-6 * 100**2)
    assert float(row["over_floor"]) == pytest.approx(10.0)
    assert (rows[5]["status"], rows[5]["reason"]) == ("time", "too long, says the test")
    assert rows[5]["seconds"] == ""


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1}', '{"format": 7}', "half"])
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(RunError, match=r"results\.json"):
        read_results(tmp_path)


def test_the_table_has_everything(results):
    text = summary(results).markdown()
    assert f"    {results.command}\n" in text
    lines = text.splitlines()
    assert "| softmax | 10.0 | 40.0 | too slow | 2.00 |" in lines  # ms and the exponent
    assert "| primal | 2.00 | 2.00 | error |" in lines  # multiples of the floor
    assert "| floor | 0.10 | 0.05 | 0.03 |" in lines  # multiples of softmax
    assert "- softmax at N = 400: too slow: too long, says the test" in lines
    assert "- primal at N = 400: error: ValueError: no" in lines
    assert "a CPU" in text
    widths = {line.count("|") for line in lines if line.startswith("|")}
    assert widths == {5, 6}


def test_equal_reasons_stand_in_one_line(results):
    for length in results.lengths:
        cell = results.cells["primal", 400]
        results.cells["primal", length] = type(cell)("primal", length, "error", cell.reason)
    assert "primal at N = 100, 200, 400: error: ValueError: no" in reasons(results)


def test_numbers_have_three_digits():
    assert [short(x) for x in (0.0123, 1.234, 12.34, 123.4, 12345.6)] == [
        "0.01", "1.23", "12.3", "123", "12346",
    ]  # fmt: skip
