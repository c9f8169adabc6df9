"""Files in the archive's format: what they may be, what is refused, and how it is told."""

import contextlib
import gzip
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from primal_attention.tasks import DataError, SeriesSet
from primal_attention.tasks.uea import read_ts, ts

GOOD = """# a comment

@problemName Some
@TIMESTAMPS False
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true up Down
@data
# another
1,2:3,4:up

5,?,7:8,9,NaN:Down
-0.5:1e3: up
"""

NUMBER = "expected a finite number, or ? or NaN where it is missing"
VALUES = "expected values without time stamps"

# one function writes many files there
many_files = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,  # a file may take its time on a busy machine
)


def replaced(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_file(ts_file):
    s = read_ts(ts_file(GOOD))
    assert s.name == "Some_TRAIN"
    assert s.classes == ("up", "Down"), "in the order of the header"
    assert s.labels.tolist() == [0, 1, 0]
    assert s.labels.dtype == np.int64
    expected = [[[1, 3], [2, 4]], [[5, 8], [np.nan, 9], [7, np.nan]], [[-0.5, 1000]]]
    for x, y in zip(s.series, expected, strict=True):
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, np.array(y, dtype=np.float64))


def test_the_same_in_other_dress(ts_file, tmp_path):
    path = ts_file(GOOD)
    expected = read_ts(path)
    for i, content in enumerate(
        [
            gzip.compress(GOOD.encode(), mtime=0),
            GOOD.replace("\n", "\r\n").encode(),
            GOOD.rstrip().encode(),  # no line break at the end
            replaced("@dimensions 2", "@dimension 2").encode(),
            replaced("@dimensions 2", "@seriesLength 99").encode(),  # means nothing if not equal
            replaced("@data", "@unheardOf of it\n@DATA").encode(),
            replaced("# a comment", "# \xe9").encode("latin-1"),
            replaced(":Down", ":down").encode(),
            replaced(":Down", ":DOWN").encode(),
        ]
    ):
        found = read_ts(str(ts_file(content, f"{i}.ts")), name="another")
        assert found.name == "another"
        assert found.classes == expected.classes
        assert found.labels.tolist() == expected.labels.tolist()
        assert [x.tobytes() for x in found.series] == [x.tobytes() for x in expected.series]


def test_univariate(ts_file):
    s = read_ts(ts_file("@univariate true\n@classLabel true 1.0 2.0\n@data\n1,2,3:2.0\n4:1.0\n"))
    assert s.channels == 1
    assert s.lengths.tolist() == [3, 1]
    assert s.labels.tolist() == [1, 0]


def test_labels_that_differ_in_case_only(ts_file):
    s = read_ts(ts_file("@classLabel true a A\n@data\n1:A\n2:a\n"))
    assert s.labels.tolist() == [1, 0]


def test_labels_in_an_unknown_encoding(ts_file):
    s = read_ts(ts_file(b"@classLabel true \xe9 \xe8\n@data\n1:\xe8\n2:\xe9\n"))
    assert s.labels.tolist() == [1, 0]


# -- without labels --------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["@classLabel false\n", ""])
def test_files_without_labels(ts_file, header):
    path = ts_file(header + "@data\n1,2:3,4\n5:6\n")
    with pytest.raises(DataError, match=r"Some_TRAIN.ts has no class labels; expected `@classLab"):
        read_ts(path)
    s = read_ts(path, allow_unlabelled=True)
    assert s.labels.tolist() == [-1, -1]
    assert s.classes == ()
    assert [x.tolist() for x in s.series] == [[[1, 3], [2, 4]], [[5, 6]]]


def test_a_case_without_a_label(ts_file):
    path = ts_file(replaced("1,2:3,4:up", "1,2:3,4:?"))
    with pytest.raises(DataError, match=r"line 12: label '\?' is not in the header"):
        read_ts(path)
    assert read_ts(path, allow_unlabelled=True).labels.tolist() == [-1, 1, 0]


# -- what is refused -------------------------------------------------------------------------------


# what is changed in GOOD, the line of the error, and what it says
CHANGES = [
    # the header
    ("@data\n", "", 11, "found '1,2:3,4:up' before @data; expected a line that begins with @"),
    ("PS False", "PS true", 4, "the file has time stamps; expected `@timeStamps false`"),
    ("PS False", "PS maybe", 4, "@TIMESTAMPS is 'maybe'; expected true or false"),
    ("PS False", "PS", 4, "@TIMESTAMPS is ''; expected true or false"),
    ("ons 2", "ons two", 7, "@dimensions is 'two'; expected an integer of at least 1"),
    ("ons 2", "ons 0", 7, "@dimensions is '0'; expected an integer of at least 1"),
    ("@missing", "@targetLabel", 5, "the file has numbers as targets; expected class labels"),
    ("true up Down", "true", 9, "@classLabel names the labels ''; expected different names"),
    ("true up Down", "true a a", 9, "@classLabel names the labels 'a a'; expected different names"),
    ("true up Down", "up Down", 9, "@classLabel is 'up'; expected true or false"),
    # labels
    ("4:up", "4:sideways", 12, "label 'sideways' is not in the header; expected one of up, Down"),
    ("4:up", "4:", 12, "label '' is not in the header; expected one of up, Down"),
    ("4:up", "4", 12, "label '3,4' is not in the header; expected one of up, Down"),
    ("1,2:3,4:up", "1,2", 12, "the case has no colon; expected a label after the last one"),
    # shapes
    ("1,2:3,4:up", "1,2:up", 12, "the case has 1 dimensions; expected 2"),
    ("1,2:3,4:up", "1:2:3:up", 12, "the case has 3 dimensions; expected 2"),
    ("@dimensions 2", "@univariate true", 12, "the case has 2 dimensions; expected 1"),
    ("8,9,NaN", "8,9", 14, "dimension 2 has 2 values; expected 3 as in dimension 1"),
    ("Length false", "Length true", 14, "the case has 3 positions; expected 2"),
    ("Length false", "Length true\n@seriesLength 3", 13, "the case has 2 positions; expected 3"),
    # values
    ("1e3", "1e3e3", 15, "value '1e3e3' in dimension 2; " + NUMBER),
    ("8,9,", "8,,", 14, "value '' in dimension 2; " + NUMBER),
    ("8,9,", "8,\0,", 14, r"value '\x00' in dimension 2; " + NUMBER),
    ("1,2:3,4", "(0,1),(1,2)", 12, "the case has (time, value) pairs; " + VALUES),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "message"), CHANGES)
def test_malformed_lines(ts_file, old, new, line, message):
    path = ts_file(replaced(old, new))
    with pytest.raises(DataError) as error:
        read_ts(path)
    assert str(error.value) == f"{path}, line {line}: {message}"


def test_the_first_case_decides_if_the_header_does_not(ts_file):
    with pytest.raises(DataError, match=r"line 15: the case has 1 dimensions; expected 2$"):
        read_ts(ts_file(replaced("@dimensions 2", "").replace("-0.5:", "")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected a .ts file"),
        (gzip.compress(b"", mtime=0), "is empty; expected a .ts file"),
        (b"\n\n", "has no @data line; expected one before the cases"),
        (GOOD.partition("@data")[0], "has no @data line; expected one before the cases"),
        (GOOD.partition("# another")[0], "has no cases after @data; expected at least one"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-20], "is a damaged or incomplete gzip file: "),
        (gzip.compress(GOOD.encode(), mtime=0)[:-2], "is a damaged or incomplete gzip file: "),
        (b"\x1f\x8b" + b"garbage" * 9, "is a damaged or incomplete gzip file: "),
    ],
)
def test_malformed_files(ts_file, content, message):
    path = ts_file(content)
    with pytest.raises(DataError, match=f"^{re.escape(f'{path} {message}')}"):
        read_ts(path)


@pytest.mark.parametrize(("cut", "label"), [(2, "' u'"), (3, "''"), (5, "'1e3'"), (8, "''")])
def test_the_last_line_is_cut(ts_file, cut, label):
    with pytest.raises(DataError) as error:
        read_ts(ts_file(GOOD[:-cut]))
    expected = (
        f"line 15: label {label} is not in the header; expected one of up, Down (the file ends"
    )
    assert f"{expected} within this line: is it complete?)" in str(error.value)


def test_binary_files_give_a_short_message(ts_file):
    with pytest.raises(
        DataError, match=r", line 1: found '\\x7fELF.*\.\.\.' before @data"
    ) as error:
        read_ts(ts_file(b"\x7fELF\x02\x01\x00" * 1000, "x.ts"))
    assert len(str(error.value)) < 400


def test_a_wrong_checksum(ts_file):
    content = bytearray(gzip.compress(GOOD.encode(), mtime=0))
    content[-6] ^= 1
    with pytest.raises(DataError, match=r"damaged or incomplete gzip file: CRC check failed"):
        read_ts(ts_file(bytes(content)))


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match=r"absent\.ts cannot be read: No such file or directory$"):
        read_ts(tmp_path / "absent.ts")
    with pytest.raises(DataError, match=r"cannot be read: Is a directory$"):
        read_ts(tmp_path)


@pytest.mark.parametrize("block", [1, 20, 1 << 18])
def test_line_numbers_do_not_depend_on_blocks(ts_file, monkeypatch, block):
    monkeypatch.setattr(ts, "_BLOCK", block)
    with pytest.raises(DataError, match="line 15: value '1f3' in dimension 2"):
        read_ts(ts_file(replaced("1e3", "1f3")))
    assert len(read_ts(ts_file(GOOD))) == 3


def test_no_cut_goes_unnoticed_within_a_line(ts_file):
    """Cut after any byte, a file is refused or gives whole cases, the first ones."""
    whole, content = read_ts(ts_file(GOOD)), GOOD.encode()
    read = 0
    for end in range(len(content)):
        try:
            s = read_ts(ts_file(content[:end]))
        except DataError:
            continue
        read += 1
        assert s.labels.tolist() == whole.labels[: len(s)].tolist()
        assert [x.tobytes() for x in s.series] == [x.tobytes() for x in whole.series[: len(s)]]
    assert read > 2
    packed = gzip.compress(content)
    for end in range(len(packed)):
        with pytest.raises(DataError):
            read_ts(ts_file(packed[:end]))


@many_files
@given(content=st.binary(max_size=200), where=st.integers(0, len(GOOD)))
def test_any_bytes_give_a_set_or_a_data_error(ts_file, content, where):
    good = GOOD.encode()
    for damaged in (content, good[:where] + content + good[where:], good[:where] + content):
        with contextlib.suppress(DataError):
            read_ts(ts_file(damaged))


# -- exactness -------------------------------------------------------------------------------------

values = st.floats(allow_infinity=False)


@st.composite
def sets(draw):
    channels = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    series = [draw(hnp.arrays(np.float64, (n, channels), elements=values)) for n in lengths]
    classes = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True))
    labels = [draw(st.integers(0, len(classes) - 1)) for _ in lengths]
    return SeriesSet("s", series, np.array(labels, dtype=np.int64), tuple(classes))


@many_files
@given(s=sets(), block=st.sampled_from([1, 100, 1 << 18]), zipped=st.booleans())
def test_round_trip(ts_file, as_ts, s, block, zipped):
    text = as_ts(s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ts, "_BLOCK", block)
        found = read_ts(ts_file(gzip.compress(text) if zipped else text))
    assert found.classes == s.classes
    assert found.labels.tolist() == s.labels.tolist()
    for x, y in zip(found.series, s.series, strict=True):
        missing = np.isnan(y)
        assert np.array_equal(np.isnan(x), missing)
        assert x[~missing].tobytes() == y[~missing].tobytes()


SMALL = ("JapaneseVowels", "Handwriting", "UWaveGestureLibrary")
LARGE = ("SpokenArabicDigits", "Heartbeat")


@pytest.mark.parametrize("split", ["TRAIN", "TEST"])
@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
)
def test_real_files_against_another_reader(real_file, ts_file, name, split):
    path = real_file(name, split)
    same_as_aeon(read_ts(path), ts_file(gzip.decompress(path.read_bytes()), f"{name}.ts"))


def same_as_aeon(s, path):
    load = pytest.importorskip("aeon.datasets").load_from_ts_file
    series, labels = load(str(path), encoding="latin-1")
    assert [s.classes[i].lower() for i in s.labels] == labels.tolist()
    assert len(s.series) == len(series)
    for x, y in zip(s.series, series, strict=True):
        assert x.shape == y.T.shape
        assert x.T.tobytes() == y.tobytes()


def test_a_utf_8_mark_is_left_out(tmp_path):
    path = tmp_path / "marked.ts"
    for text in (GOOD, GOOD.partition("\n\n")[2]):  # before a comment, before a tag
        path.write_text(text, encoding="utf-8-sig")
        assert len(read_ts(path)) == 3
