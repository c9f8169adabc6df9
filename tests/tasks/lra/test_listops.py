"""ListOps: the words, the value, the file."""

import re

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.lra.lines import Lines
from primal_attention.tasks.lra.listops import VOCABULARY, WORDS, depth, parse, value

NESTED = "( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )"
HEADER = "Source\tTarget\n"


def words(tokens):
    return [WORDS[t - 1] for t in tokens.tolist()]


def test_words_without_parentheses():
    assert words(parse(NESTED.encode())) == ["[MAX", "2", "9", "[MIN", "4", "7", "]", "]"]
    assert words(parse(b"7")) == ["7"]
    every = "[MIN [MAX [MED [SM 0 1 2 3 4 5 6 7 8 9 ] ] ] ]"
    tokens = parse(every.encode())
    assert words(tokens) == every.split()
    assert set(tokens.tolist()) == set(range(1, VOCABULARY))


@pytest.mark.parametrize(
    ("text", "expected", "levels"),
    [
        ("7", 7, 1),
        ("[MIN 4 2 7 ]", 2, 2),
        ("[MAX 4 2 7 ]", 7, 2),
        ("[MED 4 2 9 ]", 4, 2),
        ("[MED 4 2 9 7 ]", 5, 2),  # (4 + 7) / 2, rounded down
        ("[SM 9 8 7 ]", 4, 2),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9, 3),
        ("[SM [MED 1 2 ] [MAX 3 [MIN 5 4 ] ] 6 ]", 1, 4),
    ],
)
def test_value_and_depth(text, expected, levels):
    tokens = parse(text.encode())
    assert value(tokens) == expected
    assert depth(tokens) == levels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MAX 1 2", "found 1 opening and 0 closing brackets; expected one list"),
        ("[MAX 1 2 ] ]", "found 1 opening and 2 closing brackets"),
        ("] 1 [MAX", "found 1 opening and 1 closing brackets"),
        ("[MAX 1 2 ] 3", "expected one list"),
        ("1 2", "expected one list"),
        ("( [MAX 1 2 ]", "found 1 opening and 0 closing parentheses"),
        ("[MAX 1 12 ]", "found '12'; expected digits, operators (MIN, MAX, MED, SM)"),
        ("[SUM 1 2 ]", "found '[SUM'; expected"),
        ("[MAX1 2 ]", "found '[MAX1'; expected"),
        ("a 1", "found 'a'"),
        ("[MAX 1 [MIN ] ]", "found an operator without arguments; expected at least one"),
        ("", "found ''; expected"),
    ],
)
def test_what_is_not_well_formed(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text.encode())


def test_files(task, data, write, unpack):
    for name, lines in {"train": 3, "val": 1, "test": 2}.items():
        write(
            data / "lra" / "listops-1000" / f"basic_{name}.tsv",
            HEADER + f"{NESTED}\t9\n" * (lines - 1) + "( ( ( [SM 1 ) 2 ) ] )\t3\r\n",
        )
    found = task("listops").load(data)
    assert {split: len(s) for split, s in found.items()} == {"train": 3, "validation": 1, "test": 2}
    train = found["train"]
    assert train.labels.tolist() == [9, 9, 3]
    assert train.classes == tuple("0123456789")
    assert unpack(train)[1] == [parse(NESTED.encode()).tolist()]
    assert unpack(train)[2] == [parse(b"[SM 1 2 ]").tolist()]
    assert int(train.tokens.max()) < train.vocabulary == 16
    assert train.tokens.dtype == np.uint8


def test_mark_and_ends_of_lines(task, data, write):
    path = write(
        data / "listops" / "basic_train.tsv", f"\ufeffSource\tTarget\r\n{NESTED}\t9\r\n7\t7"
    )
    assert task("listops").load(data, splits=["train"])["train"].labels.tolist() == [9, 7]
    assert len(Lines(path, b"Source\tTarget")) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Source\tLabel\n1\t1\n", r"basic_train.tsv has the columns 'Source\\tLabel'; expected"),
        ("1\t1\n", "has the columns '1"),
        (HEADER + "1\t1\n1 1\n", "line 3: found 1 columns; expected an expression and its value"),
        (HEADER + "1\t1\t1\n", "line 2: found 3 columns"),
        (HEADER + "1\t12\n", "line 2: the value is '12'; expected a digit"),
        (HEADER + "1\t\n", "line 2: the value is ''; expected a digit"),
        (HEADER + "[MAX 1 2\t2\n", "line 2: found 1 opening and 0 closing brackets"),
        (HEADER + f"{NESTED}\t9\n{NESTED[:20]}", r"line 3: found 1 columns; .*\(the file ends in"),
        (HEADER + f"{NESTED}\t9\n\n", "line 3: found 1 columns"),
        (HEADER, "lra/listops train has no cases"),
        ("", "has the columns ''; expected Source and Target, separated by a tab"),
    ],
)
def test_bad_files(task, data, write, content, message):
    write(data / "listops" / "basic_train.tsv", content)
    with pytest.raises(DataError, match=message):
        task("listops").load(data, splits=["train"])
