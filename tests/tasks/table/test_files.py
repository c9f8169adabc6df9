"""Tables of rows: kinds of columns are found out, and what is wrong is said in one sentence."""

import io

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.table.files import (
    Form,
    described,
    read_again,
    read_blocks,
    read_table,
)

HEADER = "age,city,since,zip,y\n"
ROWS = "".join(f"{i}.5,{'ab'[i % 2]},2026-01-0{1 + i % 9},{i % 3},{i % 2}\n" for i in range(12))


@pytest.fixture
def write(tmp_path):
    def made(text, name="t.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return made


def test_kinds_are_found_out(write):
    path = write(HEADER + ROWS + ",NA,,?,1\n")
    file = read_table(path, target="y", id=None)
    assert dict(file.form.kinds) == {
        "age": "number", "city": "category", "since": "date", "zip": "number",
    }  # fmt: skip
    age, city, since, place = file.columns
    assert age.values[:2].tolist() == [0.5, 1.5]
    assert np.isnan(age.values[-1])
    assert np.isnan(since.values[-1])
    assert np.isnan(place.values[-1])
    assert city.values[-1] is None
    assert since.values[1] - since.values[0] == 1.0  # a day
    assert file.targets == [str(i % 2) for i in range(12)] + ["1"]
    assert described(file) == "2 numbers, 1 category (city), 1 date (since)"
    named = read_table(path, target="y", id=None, categorical=("zip",))
    assert named.form.kinds["zip"] == "category"
    assert named.columns[3].values[:3].tolist() == ["0", "1", "2"]
    assert read_table(path, target=None, id=None).form.target == "y"  # as targets are called


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "is empty; expected a line with the names of columns"),
        ("a,y\n", {}, "has no rows; expected some below"),
        ("a,y\n1,0\n", {"target": "z"}, "has no column 'z' for --target"),
        ("a,b\n1,0\n", {"target": None}, "expected --target, the one that is to be learned"),
        ("a,y\n1,0\n", {"id": "nam"}, "has no column 'nam' for --id"),
        ("y\n1\n", {}, "expected one to learn from beside the target"),
        ("a,a,y\n1,2,0\n", {}, "two columns are called 'a'; expected different names"),
        ("id,a,y\n1,2,0\n", {}, "expected --id id, or a file without it"),
        ("a,y\n1,0\n", {"categorical": ("b",)}, "has no column 'b' for --categorical"),
        ("a,y\n1,0\n2\n", {}, "line 3: the row has 1 cells; expected 2"),
        ("a,y\n1,0\n2,\n", {}, "line 3, column 'y': found ''; expected a class or a number"),
        ("a,y\n1,0\ninf,1\n", {}, "line 3, column 'a': found 'inf'; expected a finite number"),
        (
            "a,y\n" + "1,0\n" * 20 + "'12,1\n",
            {},
            "line 22, column 'a': found \"'12\"; expected a number, as in other rows, or "
            "--categorical a",
        ),
        (
            "a,y\n" + "1,0.5\n" * 20 + "1,inf\n",
            {},
            "line 22, column 'y': found 'inf'; expected a finite number, as in other rows",
        ),
        (
            "a,y\n" + "".join(f"word {i},0\n" for i in range(30)),
            {},
            "all 30 texts of column 'a' differ, so nothing can be learned from them; expected "
            "--id a",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(write, text, options, words):
    with pytest.raises(DataError) as error:
        read_table(write(text), **{"target": "y", "id": None} | options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_further_files_are_read_as_the_first(write):
    form = read_table(write(HEADER + ROWS), target="y", id=None).form
    assert Form.from_dict(form.to_dict()) == form
    again = read_again(write("zip,y,since,city,age\n2,1,2026-02-01,new,7\n", "b.csv"), form)
    assert [column.values.tolist() for column in again.columns] == [
        [7.0],
        ["new"],
        [20485.0],
        [2.0],
    ]
    assert again.targets == ["1"]

    def blocks(text, **options):
        return list(read_blocks(io.StringIO(text), "new", form, labelled=False, **options))

    (block,) = blocks("age,city,since,zip,row\n7,a,,2,x\n", id="row")
    assert block.names == ["x"]
    assert block.targets == []
    for text, words in [
        ("age,city,zip\n7,a,2\n", "new has no column 'since'; expected 'age', 'city'"),
        (
            "age,city,since,zip,cty\n7,a,,2,b\n",
            "new has a column 'cty', which the model does not know",
        ),
        ("age,city,since,zip\n", "new has no rows; expected at least one"),
        ("age,city,since,zip\nold,a,,2\n", "line 2, column 'age': found 'old'"),
        ("age,city,since,zip\n1,a,soon,2\n", "line 2, column 'since': found 'soon'"),
    ]:
        with pytest.raises(DataError, match=words):
            blocks(text)
    with pytest.raises(DataError, match="--id is 'age', which the model reads"):
        blocks("age,city,since,zip\n7,a,,2\n", id="age")
    with pytest.raises(ValueError, match="column 'age' is a 'text'"):
        Form.from_dict({"kinds": {"age": "text"}, "target": "y", "id": None})


def test_large_files_come_in_blocks_of_any_size(write, monkeypatch):
    form = read_table(write(HEADER + ROWS), target="y", id=None).form
    whole = read_again(write(HEADER + ROWS), form)
    monkeypatch.setattr("primal_attention.tasks.table.files.BLOCK", 5)
    parts = read_again(write(HEADER + ROWS), form)
    assert parts.targets == whole.targets
    for one, other in zip(parts.columns, whole.columns, strict=True):
        assert one.values.tolist() == other.values.tolist()
    blocks = list(read_blocks(io.StringIO(HEADER + ROWS), "t", form, labelled=True))
    assert [len(block.names) for block in blocks] == [5, 5, 2]
    assert [name for block in blocks for name in block.names] == [str(i) for i in range(12)]
