"""Charts: marks at their places, scales, names escaped, data complete."""

import re
from xml.etree import ElementTree

import pytest

from primal_attention.report.charts import Bubble, Mark, Series, bubbles, colour, heat, lines
from primal_attention.report.scales import Scale, span

EVIL = '<script>alert("x")</script>&'


def tree(svg):
    return ElementTree.fromstring(svg)


def found(svg, kind):
    return [e for e in tree(svg).iter() if kind in e.get("class", "").split()]


def test_a_line_goes_through_its_points():
    chart = lines([0, 1, 2], [Series("a", 0, [0.0, None, 4.0])], x_name="x", y_name="y")
    assert list(chart.views) == ["linear"]  # zero has no logarithm
    (line,) = found(chart.views["linear"], "line")
    (x0, y0), (x1, y1) = [tuple(map(float, p.split())) for p in line.get("d")[1:].split("L")]
    assert (x0, x1) == (54.0, 428.0)
    assert y0 > y1  # up is more
    assert chart.columns == ["x", "a"]
    assert chart.rows == [[0, 0.0], [1, None], [2, 4.0]]


@pytest.mark.parametrize(
    ("values", "views"),
    [([1.0, 2.0], ["linear", "log"]), ([1.0, 99.0], ["log", "linear"]), ([-1.0, 9.0], ["linear"])],
)
def test_a_log_view_where_it_makes_sense(values, views):
    chart = lines([1, 2], [Series("a", 0, values)], x_name="x", y_name="y")
    assert list(chart.views) == views


def test_the_script_finds_the_column_of_a_line():
    band = ([0.0, 0.0], [2.0, 2.0])
    series = [Series("a", 0, [1.0, 1.5], band), Series("b", 9, [1.0, 1.2])]
    chart = lines([1, 2], series, x_name="x", y_name="y", log_y=False)
    groups = found(chart.views["linear"], "series")
    names = [chart.columns[int(group.get("data-column"))] for group in groups]
    assert names == ["a", "b"]
    assert chart.columns == ["x", "a", "a, low", "a, high", "b"]
    assert all(len(row) == 5 for row in chart.rows)
    kind, low, high, start, end = tree(chart.views["linear"]).get("data-scale").split()[5:]
    assert kind == "linear"
    assert float(low) < 0.0 < 2.0 < float(high)  # the bands are inside
    assert float(start) > float(end)


def test_one_point_and_no_point_are_drawn():
    assert found(lines([1], [Series("a", 0, [3.0])], x_name="x", y_name="y").views["log"], "dot")
    empty = lines([1, 2], [Series("a", 0, [None, float("nan")])], x_name="x", y_name="y")
    assert empty.rows == [[1, None], [2, None]]
    assert not found(empty.views["linear"], "line")


def test_whole_numbers_have_whole_ticks():
    def below(x):
        chart = lines(x, [Series("a", 0, [0.0] * len(x))], x_name="epoch", y_name="y")
        ticks = found(chart.views["linear"], "tick")
        return [e.text for e in ticks if e.get("text-anchor") == "middle"]

    assert below([1, 2, 3, 4]) == ["1", "2", "3", "4"]
    assert "1.5" in below([1, 2.5, 3])


def test_names_are_text_everywhere():
    charts = [
        lines([1, 2], [Series(EVIL, 0, [1.0, 2.0])], x_name=EVIL, y_name=EVIL,
              marks=[Mark(1, 1.0, 0, EVIL)]),
        heat([[1.0]], [EVIL], [EVIL], row_name=EVIL, column_name=EVIL, value_name=EVIL,
             shades=[[1.0]], texts=[[EVIL]], tips=[[EVIL]]),
        bubbles([Bubble(EVIL, 0, 1.0, 2.0, 3.0, 1.0, 3.0)], x_name=EVIL, y_name=EVIL,
                size_name=EVIL),
    ]  # fmt: skip
    for chart in charts:
        for svg in chart.views.values():
            assert "<script" not in svg
            assert not [e for e in tree(svg).iter() if e.tag == "script"]
            assert EVIL in "".join(
                [*tree(svg).itertext(), *(v for e in tree(svg).iter() for v in e.attrib.values())]
            )


def test_a_map_has_a_cell_for_every_value():
    chart = heat(
        [[1.0, 2.0], [None, 4.0]], ["r", "a long name of a row"], ["0", "1"],
        row_name="row", column_name="column", value_name="v",
        shades=[[0.0, 0.5], [0.0, 1.0]], texts=[["1", "2"], ["", "4"]],
        tips=[["a", "b"], ["", "d"]],
    )  # fmt: skip
    svg = chart.views["map"]
    assert [e.get("data-tip") for e in found(svg, "cell")] == ["a", "b", "d"]
    assert [e.get("fill-opacity") for e in found(svg, "cell")] == ["0.000", "0.500", "1.000"]
    assert len(found(svg, "empty")) == 1
    assert [e.text for e in found(svg, "strong")] == ["4"]
    assert "a long name of …" in "".join(tree(svg).itertext())
    last = ["a long name of a row", "1", 4.0]
    assert (chart.rows[2][2], chart.rows[3]) == (None, last)


def test_the_area_of_a_bubble_is_its_size_and_small_ones_are_in_front():
    points = [Bubble("a", 0, 1.0, 5.0, 25.0), Bubble("b", 1, 2.0, 6.0, 100.0, 5.0, 7.0)]
    chart = bubbles(points, x_name="x", y_name="y", size_name="MB")
    b, a = found(chart.views["bubbles"], "bubble")
    assert float(b.get("r")) == pytest.approx(2 * float(a.get("r")))
    assert "95 % interval: 5 to 7" in b.get("data-tip")
    assert len(found(chart.views["bubbles"], "whisker")) == 1
    assert chart.rows[0] == ["a", 1.0, 5.0, None, None, 25.0]


def test_colours_repeat_with_dashes():
    assert colour(0) == "c0 d0"
    assert colour(8) == "c0 d1"
    assert len({colour(key) for key in range(24)}) == 24


# -- scales --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 1.03, False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (1.0, 100.0, False, [20, 40, 60, 80, 100]),
        (0.5, 30.0, True, [0.5, 1, 2, 5, 10, 20]),
        (12.2, 12.9, True, [12.2, 12.4, 12.6, 12.8]),
    ],
)
def test_ticks_are_round_numbers(low, high, log, ticks):
    assert Scale(low, high, 0.0, 1.0, log).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(("low", "high"), [(1e-12, 1e5), (3e-7, 4e-7), (1e-300, 1e300)])
def test_any_log_range_has_some_ticks_but_not_many(low, high):
    scale = Scale(low, high, 0.0, 100.0, True)
    assert 2 <= len(scale.ticks()) <= 12
    assert all(-0.1 <= scale(tick) <= 100.1 for tick in scale.ticks())


def test_how_ticks_are_written():
    text = Scale(0.0, 1.0, 0.0, 1.0, False).text
    shown = [text(v) for v in (0, 0.001, 12500, 1e-5, 2e6, -3e-9)]
    assert shown == ["0", "0.001", "12,500", "10⁻⁵", "2·10⁶", "-3·10⁻⁹"]


def test_a_range_is_never_empty():
    for values in ([], [0.0], [5.0, 5.0], [float("nan")], [-1e-320]):
        for log in (False, True):
            low, high = span(values, log=log)
            assert low < high
            assert not log or low > 0


def test_a_scale_says_what_it_is():
    assert re.fullmatch(r"log 1\.0 100\.0 0\.0 9\.0", Scale(1.0, 100.0, 0.0, 9.0, True).words)
    assert Scale(1.0, 100.0, 0.0, 9.0, True)(10.0) == pytest.approx(4.5)
