"""Lengths on the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primal_attention.bench.lengths import format_lengths, parse_lengths


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("512:4096:x2", (512, 1024, 2048, 4096)),
        ("100:1000:x3", (100, 300, 900)),
        ("7:7:x2", (7,)),
        ("4096", (4096,)),
        ("1, 5,1000", (1, 5, 1000)),
    ],
)
def test_good_lengths(text, lengths):
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "512,", "512,512", "1024,512", "0:8:x2", "-8:8:x2", "8:64:x1", "8:64:x0",
     "64:8:x2", "8:64", "8:64:2", "8:64:+2", "8:x2", "a:b:xc", "1e3", "5.0"],
)  # fmt: skip
def test_bad_lengths_say_what_was_expected(text):
    with pytest.raises(ValueError, match=r"the length is .*; expected") as error:
        parse_lengths(text)
    assert repr(text) in str(error.value)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(sorted))
def test_written_lengths_are_read_again(lengths):
    assert parse_lengths(format_lengths(lengths)) == tuple(lengths)


def test_ranges_are_written_as_ranges():
    assert format_lengths((512, 1024, 2048)) == "512:2048:x2"
    assert format_lengths((512, 1024, 2049)) == "512,1024,2049"
