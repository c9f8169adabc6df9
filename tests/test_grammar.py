"""How users spell things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primal_attention.grammar import (
    parse_attention,
    parse_lengths,
    parse_options,
    parse_seeds,
    parse_size,
    parse_time,
    parse_value,
    read_options,
    show_lengths,
    show_number,
    show_options,
    show_value,
    split_commas,
)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("512:4096:x2", (512, 1024, 2048, 4096)),
        ("100:1000:x3", (100, 300, 900)),
        ("7:7:x2", (7,)),
        ("4096", (4096,)),
        ("1, 5,1000", (1, 5, 1000)),
        ("1k:10M", (1000, 10_000, 100_000, 1_000_000, 10_000_000)),
        ("2k:5k", (2000, 5000)),
        ("8:64", (8, 64)),
        ("128, 4k", (128, 4000)),
        ("1.5k:6k:x2", (1500, 3000, 6000)),
    ],
)
def test_good_lengths(text, lengths):
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "512,", "512,512", "1024,512", "0:8:x2", "-8:8:x2", "8:64:x1", "8:64:x0",
     "64:8:x2", "4k:1k", "8:64:2", "8:64:+2", "8:x2", "a:b:xc", "1e3", "5.0", "ten", "8:", ":8"],
)  # fmt: skip
def test_bad_lengths_say_what_was_expected(text):
    with pytest.raises(ValueError, match=r"lengths is .*; expected") as error:
        parse_lengths(text)
    assert repr(text) in str(error.value)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(sorted))
def test_written_lengths_are_read_again(lengths):
    assert parse_lengths(show_lengths(lengths)) == tuple(lengths)


def test_ranges_are_written_as_ranges():
    assert show_lengths((512, 1024, 2048)) == "512:2048:x2"
    assert show_lengths((512, 1024, 2049)) == "512,1024,2049"


def test_attention_is_one_name_or_one_for_each_layer():
    assert parse_attention("primal", None) == ("primal", "primal")
    assert parse_attention("primal", 3) == ("primal",) * 3
    assert parse_attention("softmax, primal", None) == ("softmax", "primal")
    assert parse_attention("softmax,primal", 2) == ("softmax", "primal")
    assert parse_attention("softmax*2+primal", 3) == ("softmax", "softmax", "primal")
    assert parse_attention("softmax*3, primal", None) == ("softmax",) * 3 + ("primal",)
    for wrong in ("softmax*0,primal", "softmax*,primal", "softmax*two"):
        with pytest.raises(ValueError, match=r"expected names as in softmax\*11,primal"):
            parse_attention(wrong, None)
    with pytest.raises(ValueError, match="--layers is 3 but --attention names 2"):
        parse_attention("softmax,primal", 3)
    with pytest.raises(ValueError, match="at least 1"):
        parse_attention("primal", 0)


def test_seeds():
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("0,3,7") == [0, 3, 7]
    assert parse_seeds("0-2, 7") == [0, 1, 2, 7]


@pytest.mark.parametrize("text", ["", "a", "4-0", "0,,1", "-1", "0-2-4", "1.5", "0-2,1"])
def test_wrong_seeds(text):
    with pytest.raises(ValueError, match="--seeds is"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a,b", ["a", "b"]),
        ("a=[1,2],b,c=[3],[]", ["a=[1,2]", "b", "c=[3]", "[]"]),
        ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
    ],
)
def test_commas_in_a_list_divide_nothing(text, parts):
    assert split_commas(text) == parts


def test_options_of_attentions():
    texts = ["performer.features=64", "performer.name=plain", "flow.a=1.5", "flow.b=[1, 2]"]
    found = parse_options(texts)
    assert found == {
        "performer": {"features": 64, "name": "plain"},
        "flow": {"a": 1.5, "b": [1, 2]},
    }
    assert parse_options(show_options(found)) == found


@pytest.mark.parametrize("text", ["features=64", "performer.features", "a.b.c", "a.=1", ""])
def test_wrong_options_of_attentions(text):
    with pytest.raises(ValueError, match=r"--option is .*expected attention.name=value"):
        parse_options([text])
    with pytest.raises(ValueError, match=r"--option a.b is given twice"):
        parse_options(["a.b=1", "a.b=2"])


def test_options_as_a_mapping():
    nested = {"performer": {"features": 8}, "flow": {"a": 1, "b": None}}
    assert read_options(nested) == nested
    assert read_options({"performer.features": 8, "flow.a": 1, "flow": {"b": None}}) == nested
    assert read_options(None) == {}


@pytest.mark.parametrize(
    "given", [{"features": 8}, {"performer.": 8}, {".features": 8}, "performer.features=8", [1]]
)
def test_wrong_options_as_a_mapping(given):
    with pytest.raises(ValueError, match=r"options (has|is) .*expected such as .*performer.feat"):
        read_options(given)


def test_values():
    texts = {"8": 8, "1e-3": 1e-3, "true": True, "False": False, "none": None, "null": None,
             "cosine": "cosine", "[1, 2]": [1, 2]}  # fmt: skip
    for text, value in texts.items():
        assert parse_value(text) == value
        assert parse_value(show_value(value)) == value


def test_times_and_sizes():
    assert [parse_time(text) for text in ("90", "90s", "30m", "1.5h", "2d")] == [
        90, 90, 1800, 5400, 172800,
    ]  # fmt: skip
    assert parse_size("1.5G") == 3 << 29
    assert parse_size("512MB") == 512 << 20
    assert [show_number(n) for n in (999, 1000, 123_456_789)] == ["999", "1k", "123M"]
    assert show_number(1023 * 2**20, 1024) == "1023M"
