"""Long and wide tables as cases."""

import numpy as np
import pytest

from primal_attention.tasks.base import DataError
from primal_attention.tasks.own.columns import Columns, cases_of, is_wide
from primal_attention.tasks.own.table import Table

LONG = "id,t,x,y,label\na,1,1,10,up\nb,0,5,50,down\na,0,0,,up\nb,1,6,60,down\n"


def table(text):
    return Table(text.splitlines(keepends=True), "a.csv")


def read(text, *, labelled=True, together=False, **columns):
    known = Columns(**columns).of(table(text), labelled=labelled)
    return list(cases_of(table(text), known, labelled=labelled, together=together))


def test_long_rows_are_gathered_and_ordered_by_time():
    a, b = read(LONG, target="label", id="id", time="t")
    assert (a.name, a.target, b.name, b.target) == ("a", "up", "b", "down")
    np.testing.assert_array_equal(a.series, [[0, np.nan], [1, 10]])
    np.testing.assert_array_equal(b.series, [[5, 50], [6, 60]])


def test_times_may_be_dates():
    text = "id,t,x,y\na,2026-01-02,2,1\na,2026-01-01 23:00:00+00:00,1,1\n"
    (case,) = read(text, target="y", id="id", time="t")
    np.testing.assert_array_equal(case.series[:, 0], [1, 2])


def test_streamed_cases_equal_gathered_ones_where_rows_are_together():
    text = "id,t,x,y\n" + "".join(f"{c},{t},{t},{c}\n" for c in "abc" for t in (2, 0, 1))
    whole = read(text, target="y", id="id", time="t")
    streamed = read(text, target="y", id="id", time="t", together=True)
    for one, other in zip(whole, streamed, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.series, other.series)


def test_wide_rows_are_series_that_end_with_their_last_value():
    text = "t0,t1,t2,class\n1,,3,a\n4,5,,b\n"
    first, second = read(text)
    np.testing.assert_array_equal(first.series, [[1], [np.nan], [3]])
    np.testing.assert_array_equal(second.series, [[4], [5]])
    assert (first.name, first.target, second.target) == ("0", "a", "b")


def test_an_id_that_never_repeats_names_the_rows_of_a_wide_table():
    text = "case,t0,t1,y\nfirst,1,2,0\nsecond,3,4,1\n"
    known = Columns(target="y", id="case").of(table(text), labelled=True)
    assert is_wide(table(text), known)
    assert not is_wide(table(LONG), Columns(target="label", id="id").of(table(LONG), labelled=True))
    wide = Columns(**{**known.to_dict(), "channels": known.channels, "wide": True})
    assert [c.name for c in cases_of(table(text), wide, labelled=True)] == ["first", "second"]


def test_new_tables_need_no_target_and_any_order_of_columns():
    known = Columns(target="label", id="id", time="t").of(table(LONG), labelled=True)
    again = Columns.from_dict(known.to_dict())
    assert again == known
    text = "y,x,t,id\n10,1,0,a\n"
    found = again.of(table(text), labelled=False)
    (case,) = cases_of(table(text), found, labelled=False)
    np.testing.assert_array_equal(case.series, [[1, 10]])


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("x,z\n1,2\n", {}, "has the columns 'x', 'z'; expected --target"),
        (LONG, {"target": "lable"}, r"no column 'lable' for --target (did you mean 'label'?)"),
        (LONG, {"target": "label", "time": "t"}, "--time is 't' without --id"),
        (LONG, {"target": "label"}, "has a column 'id', which would be a channel; expected --id"),
        ("id,y\na,1\n", {"target": "y", "id": "id"}, "expected one with measured values"),
        ("id,x,y\na,1,0\na,2,1\n", {"id": "id"}, "line 3, column 'y': found '1'; expected '0'"),
        ("id,x,y\na,1,\n", {"id": "id"}, "line 2, column 'y': found ''; expected a class"),
        ("id,x,y\n,1,0\n", {"id": "id"}, "column 'id': found ''; expected the name of a case"),
        ("id,x,y\na,,0\na,,0\n", {"id": "id"}, "line 2: 'a' has no value at all"),
        ("x,z,y\n,,0\n", {}, "line 2: the row has no value at all"),
        (
            "id,t,x,y\na,0,1,0\na,0,1,0\n",
            {"id": "id", "time": "t"},
            "line 3, column 't': 'a' has this time in line 2 too",
        ),
        (
            "id,t,x,y\na,noon,1,0\n",
            {"id": "id", "time": "t"},
            "column 't': found 'noon'; expected a number, or a date",
        ),
    ],
)
def test_what_is_wrong_names_its_place(text, columns, said):
    with pytest.raises(DataError) as caught:
        read(text, **columns)
    assert said in str(caught.value)


def test_streams_refuse_rows_that_are_apart():
    with pytest.raises(DataError, match="line 4: the rows of 'a' are not together; expected a"):
        read(LONG, target="label", id="id", time="t", together=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,t,x\na,0,1\n", "has no column 'y'; expected the channels 'x', 'y'"),
        ("id,t,x,y,z\na,0,1,1,1\n", "has a column 'z', which the model does not know"),
    ],
)
def test_new_tables_must_have_the_channels_of_training(text, said):
    known = Columns(target="label", id="id", time="t").of(table(LONG), labelled=True)
    with pytest.raises(DataError) as caught:
        known.of(table(text), labelled=False)
    assert said in str(caught.value)
