"""Pairs of papers."""

import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.lra.lines import Lines

LINES = [
    b'1.0\tP05-1022\tP03-1054\tfirst text\tsecond "text\n',
    b"0.0\tA\tB\t'x\ty\n",
    b"0\tA\tB\t" + b"z" * 12_000 + b"\t\xc3\xa9\r\n",
]


@pytest.fixture
def pairs(data, write):
    for name in ("train", "eval", "test"):
        write(data / "lra_release" / "tsv_data" / f"new_aan_pairs.{name}.tsv", b"".join(LINES))
    return data


def test_pairs(pairs, task, unpack):
    sets = task("retrieval").load(pairs)
    assert list(sets) == ["train", "validation", "test"]
    train = sets["train"]
    assert train.labels.tolist() == [1, 0, 0]
    assert train.sequences == 2
    texts = [[bytes(t - 1 for t in row) for row in case] for case in unpack(train)]
    assert texts == [[b"first text", b'second "text'], [b"'x", b"y"], [b"z" * 10_000, b"\xc3\xa9"]]
    assert train.vocabulary == 257


def test_mark_ends_and_equal_pairs(data, write, task, unpack):
    """A byte order mark is left out; \\r\\n ends lines, and the last one may have no end."""
    lines = b"\xef\xbb\xbf1.0\tA\tB\tx\ty\r\n1.0\tA\tB\tx\ty\n0.0\tA\tB\t \tz"
    path = write(data / "lra" / "tsv_data" / "new_aan_pairs.train.tsv", lines)
    train = task("retrieval").load(data, splits=["train"])["train"]
    texts = [[bytes(t - 1 for t in row) for row in case] for case in unpack(train)]
    assert texts == [[b"x", b"y"], [b"x", b"y"], [b" ", b"z"]]
    assert train.labels.tolist() == [1, 1, 0]
    assert len(Lines(path)) == 3


def test_a_file_without_pairs(data, write, task):
    write(data / "lra" / "tsv_data" / "new_aan_pairs.train.tsv", b"")
    with pytest.raises(DataError, match=r"lra/retrieval train has no cases in .*train\.tsv"):
        task("retrieval").load(data, splits=["train"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1.0\tA\tB\tx\n", "line 4: found 4 columns; expected label, two names and two texts"),
        (b"1.0\tA\tB\tx\ty\tz\n", "line 4: found 6 columns"),
        (b"\n", "line 4: found 1 columns"),
        (b"yes\tA\tB\tx\ty\n", "line 4: the label is 'yes'; expected 0 or 1"),
        (b"2.0\tA\tB\tx\ty\n", r"line 4: the label is '2\.0'"),
        (b"1.0\tA\tB\t\ty\n", "line 4: a text is empty; expected two texts"),
        (b"1.0\tA\tB\tx\t\r\n", "line 4: a text is empty"),
        (b"1.0\tA\tB\tx", r"line 4: found 4 columns; .* \(the file ends in this line: is it compl"),
    ],
)
def test_bad_lines(data, write, task, line, message):
    write(data / "lra" / "tsv_data" / "new_aan_pairs.train.tsv", b"".join([*LINES, line]))
    with pytest.raises(DataError, match=f"new_aan_pairs.train.tsv, {message}"):
        task("retrieval").load(data, splits=["train"])
    assert task("retrieval").status(data).missing == ("validation", "test")
