"""Numbers out of text: the quick way reads what the plain way reads, to the last bit."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primal_attention.tasks.uea.cases import CaseError, read_at_once, read_cases, read_one


def same(found, expected):
    assert [x.shape for x in found] == [x.shape for x in expected]
    assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]


def plainly(texts):
    try:
        return [read_one(text) for text in texts]
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1.5", [[1.5]]),
        (b"1,2,3", [[1], [2], [3]]),
        (b"1,2:3,4:5,6", [[1, 3, 5], [2, 4, 6]]),
        (b"-.5,+.5,5.,007", [[-0.5], [0.5], [5.0], [7.0]]),
        (b"1e3,1E-3,-1.5e+2,0.1e1", [[1000.0], [0.001], [-150.0], [1.0]]),
        (b"-0,-0.0,0.00", [[-0.0], [-0.0], [0.0]]),
        (b"0.1,0.2,0.3", [[0.1], [0.2], [0.3]]),
        # one above what float64 counts without gaps, more than int64 holds, the extremes of float64
        (b"9007199254740993,-9007199254740993", [[9007199254740992.0], [-9007199254740992.0]]),
        (b"123456789012345678901234567890", [[1.2345678901234568e29]]),
        (b"0.1000000000000000055511151231257827", [[0.1]]),
        (b"1.7976931348623157e308,5e-324,1e-400", [[1.7976931348623157e308], [5e-324], [0.0]]),
        # 10^23 is not a float64, 10^22 is the last power that is
        (b"3e22,3e23,7e-22,7e-23", [[3e22], [3e23], [7e-22], [7e-23]]),
        (b"0e99999999999999999999,-1e-99999999999999999999", [[0.0], [-0.0]]),
    ],
)
def test_numbers(text, expected):
    expected = np.array(expected, dtype=np.float64)
    same([read_one(text)], [expected])
    found = read_at_once([text])
    assert found is not None, "nothing unusual in it"
    same(found, [expected])


@pytest.mark.parametrize("text", [b"?,NaN,nan,-nan", b" 1 , 2\t,3 "])
def test_unusual_numbers_are_read_plainly(text):
    assert read_at_once([text]) is None
    same(read_cases([text]), [read_one(text)])


def test_missing_values():
    x = read_one(b"?,1:NaN,nan")
    assert np.isnan(x).tolist() == [[True, True], [False, True]]


MALFORMED = [
    b"", b",", b"1,", b",1", b"1,,2", b":", b"1:", b":1",
    b"-", b"+", b".", b"-.", b"1,-,2", b"+-1", b"--1", b"1-2", b".-5", b"1.-5", b"1.2.3",
    b"1e", b"e5", b"-e5", b"1e-", b"1e2e3", b"1e2.3", b"1e.3", b"1e5.", b"1e999",
    b"0x10", b"1_000", b"inf", b"-Infinity", b"1 2", b"1. 5", b"1;2", b"one", b"\x00", b"1\xff",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_numbers(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_at_once([text]) is None
        with pytest.raises(ValueError, match=r"value '.*' in dimension [12]; expected a finite"):
            read_one(text)
        for texts in ([b"1,2", text], [text, b"1,2"]):
            assert read_at_once(texts) is None


def test_the_message_names_the_wrong_value():
    with pytest.raises(ValueError, match=r"^value '4x' in dimension 2; expected a finite number"):
        read_one(b"1,2:3,4x")
    with pytest.raises(ValueError, match=r"^value 'x{37}\.\.\.' in dimension 1; expected"):
        read_one(b"1," + b"x" * 1000)


def test_the_error_tells_which_case():
    with pytest.raises(CaseError, match="dimension 3 has 1 values; expected 2 as in dim") as error:
        read_cases([b"1,2", b"1,2:3,4:5", b"x"])
    assert error.value.index == 1


def test_time_stamps():
    with pytest.raises(ValueError, match=r"\(time, value\) pairs; expected values without time"):
        read_one(b"(0,1.5),(1,2.5)")


def test_ragged_dimensions_are_left_to_the_plain_way():
    assert read_at_once([b"1,2:3"]) is None
    assert read_at_once([b"1:2,3"]) is None
    assert read_at_once([b"1,2:3,4", b"1:2", b"5"]) is not None


pieces = st.sampled_from(
    [
        *("0", "1", "25", "007", "0.1", "-0", "-.5", "5.", "9007199254740993", "?"),
        *("-", "+", ".", "e", "E", ",", ",", ":", "e-3", "e22", "e23", "e-400"),
        "e9999999999999999999",
    ]
)  # fmt: skip
texts = st.lists(pieces, min_size=1, max_size=8).map(lambda parts: "".join(parts).encode())


@given(st.lists(texts, min_size=1, max_size=3))
def test_quick_and_plain_agree_on_any_text(texts):
    found, expected = read_at_once(texts), plainly(texts)
    if found is None:
        assert expected is None or any(b"?" in text for text in texts)
    else:
        assert expected is not None
        same(found, expected)


digits = st.integers(0, 10**18).map(str)
decimals = st.tuples(
    st.sampled_from(["", "-", "+"]), digits, st.just("") | digits.map(".{}".format),
    st.just("") | st.integers(-40, 40).map("e{:+}".format) | st.integers(-9, 9).map("E{}".format),
).map("".join)  # fmt: skip


@given(st.lists(decimals, min_size=1, max_size=20))
def test_decimals_are_correctly_rounded(numbers):
    found = read_at_once([",".join(numbers).encode()])
    assert found is not None
    same(found, [np.array([[float(number)] for number in numbers])])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_come_back(numbers):
    found = read_at_once([",".join(map(repr, numbers)).encode()])
    assert found is not None
    same(found, [np.array(numbers)[:, None]])
