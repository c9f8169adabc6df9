"""Rows and numbers of csv files, and one sentence for each way in which they can be wrong."""

import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primal_attention.tasks.base import DataError
from primal_attention.tasks.own.table import Table, opened


def table(text):
    return Table(text.splitlines(keepends=True), "a.csv")


def test_rows_with_their_lines_and_any_usual_delimiter():
    for delimiter in ",;\t|":
        found = table(f"x{delimiter}y\n1{delimiter}2\n\n3{delimiter}4\n")
        assert found.header == ["x", "y"]
        assert [(row.line, row.cells) for row in found] == [(2, ["1", "2"]), (4, ["3", "4"])]


def test_quoted_cells_may_hold_line_breaks():
    rows = list(table('name,x\n"a\nb",1\nc,2\n'))
    assert [row.cells for row in rows] == [["a\nb", "1"], ["c", "2"]]
    assert rows[1].line == 4


@pytest.mark.parametrize("word", ["", " ", "?", "NaN", "NA", "null"])
def test_missing_values(word):
    found = table(f"x,y\n{word},2\n")
    first, second = found.numbers(next(iter(found)), [0, 1])
    assert math.isnan(first)
    assert second == 2.0


@given(st.lists(st.floats(allow_infinity=False, allow_nan=False), min_size=1, max_size=5))
def test_numbers_are_exact(values):
    names = ",".join(f"c{i}" for i in range(len(values)))
    found = table(f"{names}\n{','.join(map(repr, values))}\n")
    assert found.numbers(next(iter(found)), range(len(values))) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.csv is empty; expected a line with the names of columns"),
        ("x,,z\n", "a.csv, line 1: column 2 has no name"),
        ("x,x\n", "two columns are called 'x'"),
        ("0.5,0.25\n1,2\n", "found '0.5', '0.25'; expected names of columns"),
        ("x,y\n1,2\n1,2,3\n", "a.csv, line 3: the row has 3 cells; expected 2"),
        ('x,y\n"1,2\n', "a.csv, line "),
    ],
)
def test_what_is_wrong_is_one_sentence(text, said):
    with pytest.raises(DataError) as caught:
        list(table(text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("word", ["abc", "inf", "-Infinity", "1,5", "1e999"])
def test_what_is_no_number_names_line_column_and_value(word):
    found = table(f'x;y\n1;"{word}"\n')
    with pytest.raises(DataError, match=rf"a.csv, line 2, column 'y': found '{word}'; expected a"):
        found.numbers(next(iter(found)), [0, 1])


def test_files_plain_gzipped_marked_and_broken(tmp_path):
    plain = tmp_path / "a.csv"
    plain.write_bytes(b"\xef\xbb\xbfx,y\n1,2\n")
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"x,y\n1,2\n"))
    for path in (plain, packed):
        with opened(path) as lines:
            assert [row.cells for row in Table(lines, "a")] == [["1", "2"]]
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(packed.read_bytes()[:-6])
    with pytest.raises(DataError, match="damaged or incomplete"), opened(broken) as lines:
        list(Table(lines, "a"))
    whole = bytearray(gzip.compress(bytes(range(256)) * 50))
    whole[20:40] = bytes(20)
    broken.write_bytes(whole)
    with pytest.raises(DataError, match="damaged or incomplete"), opened(broken) as lines:
        list(Table(lines, "a"))
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"x,y\n1,\xe9\n")
    with pytest.raises(DataError, match="expected text in UTF-8"), opened(latin) as lines:
        list(Table(lines, "a"))
    with pytest.raises(DataError, match="cannot be read"), opened(tmp_path / "no.csv"):
        pass
