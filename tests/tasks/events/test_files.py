"""Files of events: what is read, and clear words about what is wrong."""

import gzip

import numpy as np
import pytest

from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.events.files import read_pair, read_rows, read_table

GOOD = "sequence,time,type\nu1,1.5,b\nu1,2.5,a\nu2,0,a\nu2,0,a\nu2,7,b\nlonely,3,b\n"


def write(path, text):
    path.write_text(text)
    return path


def test_a_table(tmp_path):
    found = read_table(write(tmp_path / "log.csv", GOOD))
    assert found.names == ("a", "b")
    assert [types.tolist() for types in found.types] == [[1, 0], [0, 0, 1]]  # one event is none
    assert found.times[1].tolist() == [0.0, 0.0, 7.0]
    assert found.events == 3
    whole, names = read_rows(tmp_path / "log.csv", shortest=1)
    assert names == ("u1", "u2", "lonely")
    assert len(whole) == 3


def test_broken_files(tmp_path):
    with pytest.raises(DataError, match=r"line 2 of .*log.csv cannot be read: field larger than"):
        read_table(write(tmp_path / "log.csv", f"sequence,time,type\na,1,{'x' * 200_000}\n"))
    whole = bytearray(gzip.compress(GOOD.encode() * 50))
    whole[20:40] = bytes(20)
    (tmp_path / "log.csv.gz").write_bytes(whole)
    with pytest.raises(DataError, match=r"cannot read .*log.csv.gz"):
        read_table(tmp_path / "log.csv.gz")


def test_columns_may_stand_anywhere_and_files_may_be_compressed(tmp_path):
    path = tmp_path / "log.tsv.gz"
    path.write_bytes(
        gzip.compress(b"\xef\xbb\xbfType\tx\tTIME\tSequence\nb\t\t1\tq\n\na\t\t2\tq\n")
    )
    found = read_table(path)
    assert found.times[0].tolist() == [1.0, 2.0]
    assert found.fingerprint() == read_table(path).fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sequence,time\nu,1\n", "has the columns sequence, time; expected sequence, time, type"),
        ("", "has the columns none"),
        (
            "sequence,time,type\nu,2,a\nu,1,a\n",
            r"line 3 .* goes back in time: sequence 'u' is at 1",
        ),
        ("sequence,time,type\nu,soon,a\n", r"line 2 .* has the time 'soon'; expected a number"),
        ("sequence,time,type\nu,inf,a\n", "has the time 'inf'"),
        ("sequence,time,type\nu,1,\n", r"line 2 .* has no type"),
        ("sequence,time,type\nu,1\n", r"line 2 .* has 2 cells; expected 3"),
        ("sequence,time,type\nu,1,a\nv,1,a\n", "no sequence of 2 events"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / "log.csv", text))


def test_types_that_are_not_known(tmp_path):
    with pytest.raises(
        DataError, match=r"line 2 .* has the type 'b', which the model does not know"
    ):
        read_table(write(tmp_path / "log.csv", GOOD), ("a", "c"))


def test_two_files_with_a_line_for_each_sequence(tmp_path):
    events = write(tmp_path / "event.txt", "1 2 2\n2\n1 1\n")
    times = write(tmp_path / "time.txt", "0.5 1 3\n4\n1 2\n")
    found = read_pair(events, times, ("x", "y"))
    assert [t.tolist() for t in found.types] == [[0, 1, 1], [0, 0]]
    for text, message in (
        ("0.5 1\n4\n1 2\n", "line 1 of event.txt has 3 types and of time.txt 2 times"),
        ("0.5 1 3\n4\n", "has 3 sequences and time.txt 2"),
        ("0.5 a 3\n4\n1 2\n", "line 1 of .*time.txt cannot be read"),
        ("5 1 3\n4\n1 2\n", "goes back in time"),
    ):
        with pytest.raises(DataError, match=message):
            read_pair(events, write(times, text), ("x", "y"))
    write(times, "0.5 1 3\n4\n1 2\n")
    with pytest.raises(DataError, match="has the type 2; expected 1 to 1"):
        read_pair(events, times, ("x",))


def test_the_published_files_are_found(tmp_path):
    folder = tmp_path / "events" / "book_order"
    folder.mkdir(parents=True)
    task = get_task("events/book_order")
    assert task.status(tmp_path).missing == ("train", "test")
    with pytest.raises(DataError, match=r"event-1-train\.txt"):
        task.load(tmp_path)
    write(folder / "event-1-train.txt", "1 2 1\n")
    (folder / "time-1-train.txt.gz").write_bytes(gzip.compress(b"0 1 2\n"))
    found = task.load(tmp_path, splits=("train",))["train"]
    assert np.array_equal(found.types[0], [0, 1, 0])
