"""Small SVG charts for the page: lines, maps and bubbles, each with the table of what it shows.

Colours are classes that the style sheet of the page fills in, for light and dark. All names are
escaped here. What the page's script needs to answer a pointer stands in data attributes: `data-tip`
on marks; the scale of a line chart on its SVG, whose numbers the script takes from the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from .scales import Scale, span

Cell = str | float | int | None
COLOURS = 8  # of the style sheet; further series take dashes

WIDTH, HEIGHT = 440.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 12.0, 22.0, 40.0
LARGEST_BUBBLE, SMALLEST_BUBBLE = 26.0, 4.0  # radii
LONGEST_LABEL = 16
NUMBERS_UP_TO = 30  # columns; a larger map shows colours without numbers
STRONG_FROM = 0.65  # shades; numbers on darker cells take the other colour
LOG_FROM = 30.0  # the ratio of the values from which a log scale is shown first


class Chart(NamedTuple):
    """Views of the same data (name: SVG, the first is shown) and the data as a table."""

    views: dict[str, str]
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Series:
    """One line. Lines of equal `key` share a colour and a button of the legend; `band` is drawn
    around the line."""

    name: str
    key: int
    y: Sequence[float | None]
    band: tuple[Sequence[float], Sequence[float]] | None = None


class Mark(NamedTuple):
    """A dot on a line, with what it says."""

    x: float
    y: float
    key: int
    tip: str


class Bubble(NamedTuple):
    """A disc whose area is `size`, with a whisker from `low` to `high` where these are known."""

    name: str
    key: int
    x: float
    y: float
    size: float
    low: float | None = None
    high: float | None = None


def colour(key: int) -> str:
    """The classes of a series: its colour and, where colours repeat, its dashes."""
    return f"c{key % COLOURS} d{key // COLOURS % 3}"


# -- lines ---------------------------------------------------------------------------------------


def lines(
    x: Sequence[float],
    series: Sequence[Series],
    *,
    x_name: str,
    y_name: str,
    log_x: bool = False,
    log_y: bool | None = None,
    limits: tuple[float, float] | None = None,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Lines over common x; None is no point, and a line continues beyond it. Where all values are
    positive there is a logarithmic view too (log_y None), the first one if they span much; True or
    False give the one view."""
    known = _numbers([v for one in series for v in one.y])
    positive = bool(known) and min(known) > 0
    wide = positive and max(known) > LOG_FROM * min(known)
    kinds = [False, True] if log_y is None and positive else [bool(log_y) and positive]
    if wide and log_y is None:
        kinds.reverse()
    views = {
        "log" if log else "linear": _line_view(x, series, x_name, y_name, log_x, log, limits, marks)
        for log in kinds
    }
    columns = [x_name]
    table: list[list[Cell]] = [[value] for value in x]
    for one in series:
        extra = [] if one.band is None else [f"{one.name}, low", f"{one.name}, high"]
        columns += [one.name, *extra]
        for i, row in enumerate(table):
            row.append(one.y[i] if _finite(one.y[i]) else None)
            if one.band is not None:
                row += [float(one.band[0][i]), float(one.band[1][i])]
    return Chart(views, columns, table)


def _line_view(
    x: Sequence[float],
    series: Sequence[Series],
    x_name: str,
    y_name: str,
    log_x: bool,
    log_y: bool,
    limits: tuple[float, float] | None,
    marks: Sequence[Mark],
) -> str:
    across = Scale(*span(x, log=log_x, margin=0.0), LEFT, WIDTH - RIGHT, log_x)
    heights = _numbers([v for one in series for v in one.y])
    if not log_y:
        heights += [float(v) for one in series if one.band for side in one.band for v in side]
    up = Scale(*(limits or span(heights, log=log_y)), HEIGHT - BOTTOM, TOP, log_y)

    def places(values: Sequence[float | None]) -> list[tuple[float, float]]:
        known = [(a, b) for a, b in zip(x, values, strict=True) if b is not None and _finite(b)]
        return [(across(float(a)), up(float(b))) for a, b in known]

    whole = all(float(value).is_integer() for value in x)  # there is no epoch 1.5
    parts = [_axes(across, up, x_name, y_name, whole)]
    column = 1
    for one in series:
        points, inside = places(one.y), ""
        if one.band is not None:
            around = places(one.band[1]) + places(one.band[0])[::-1]
            inside += f'<path class="band" d="{_path(around)}Z"/>'
        if len(points) == 1:
            inside += f'<circle class="dot" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3"/>'
        elif points:
            inside += f'<path class="line" d="{_path(points)}"/>'
        parts.append(
            f'<g class="series {colour(one.key)}" data-key="{one.key}" data-column="{column}">'
            f"{inside}</g>"
        )
        column += 1 if one.band is None else 3
    for mark in marks:
        if log_y and mark.y <= 0:
            continue
        parts.append(
            f'<circle class="mark {colour(mark.key)}" data-key="{mark.key}" r="4" '
            f'cx="{across(mark.x):.1f}" cy="{up(mark.y):.1f}" data-tip="{escape(mark.tip)}"/>'
        )
    label = f"{y_name} against {x_name}: {', '.join(one.name for one in series)}"
    return _svg(WIDTH, HEIGHT, label, "".join(parts), f' data-scale="{across.words} {up.words}"')


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


# -- maps ----------------------------------------------------------------------------------------


def heat(
    values: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_name: str,
    column_name: str,
    value_name: str,
    shades: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    tips: Sequence[Sequence[str]],
    cell: float = 28.0,
) -> Chart:
    """A map of values, coloured by shades in [0, 1]; None leaves a cell empty."""
    left = 26.0 + 6.2 * max(min(len(name), LONGEST_LABEL) for name in rows)
    turned = max(len(name) for name in columns) > 3
    longest = max(min(len(name), LONGEST_LABEL) for name in columns)
    bottom = 26.0 + (4.6 * longest + 8.0 if turned else 12.0)
    width = max(left + cell * len(columns) + 10.0, 220.0)
    height = 6.0 + cell * len(rows) + bottom
    parts = []
    for i, name in enumerate(rows):
        middle = 6.0 + cell * (i + 0.5)
        parts.append(_label(left - 6, middle + 4, _short(name), "end"))
        for j, value in enumerate(values[i]):
            if value is None:
                parts.append(_box(left + cell * j, middle - cell / 2, cell, "empty", 1.0, ""))
                continue
            shade = min(max(shades[i][j], 0.0), 1.0)
            tip = f' data-tip="{escape(tips[i][j])}"'
            parts.append(_box(left + cell * j, middle - cell / 2, cell, "cell", shade, tip))
            if len(columns) <= NUMBERS_UP_TO and texts[i][j]:
                kind = "number strong" if shade > STRONG_FROM else "number"
                parts.append(
                    f'<text class="{kind}" x="{left + cell * (j + 0.5):.1f}" '
                    f'y="{middle + 4:.1f}">{escape(texts[i][j])}</text>'
                )
    base = 6.0 + cell * len(rows)
    for j, name in enumerate(columns):
        at = left + cell * (j + 0.5)
        if turned:
            spin = f' transform="rotate(-45 {at:.1f} {base + 14:.1f})"'
            parts.append(_label(at, base + 14, _short(name), "end", spin))
        else:
            parts.append(_label(at, base + 15, _short(name), "middle"))
    centre = left + cell * len(columns) / 2
    parts.append(_label(centre, height - 4, column_name, "middle", kind="name"))
    side = 6.0 + cell * len(rows) / 2
    spin = f' transform="rotate(-90 12 {side:.1f})"'
    parts.append(_label(12, side, row_name, "middle", spin, kind="name"))
    label = f"{value_name} by {row_name} and {column_name}"
    table: list[list[Cell]] = [
        [rows[i], columns[j], value] for i, row in enumerate(values) for j, value in enumerate(row)
    ]
    drawn = _svg(width, height, label, "".join(parts), f' style="max-width:{width:.0f}px"')
    return Chart({"map": drawn}, [row_name, column_name, value_name], table)


def _box(x: float, y: float, cell: float, kind: str, shade: float, tip: str) -> str:
    return (
        f'<rect class="{kind}" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{cell - 1:.1f}" '
        f'height="{cell - 1:.1f}" fill-opacity="{shade:.3f}"{tip}/>'
    )


# -- bubbles -------------------------------------------------------------------------------------


def bubbles(points: Sequence[Bubble], *, x_name: str, y_name: str, size_name: str) -> Chart:
    """Discs over x, logarithmic, and y, the larger ones behind the smaller."""
    ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    across = Scale(*span([p.x for p in points], log=True, margin=0.25), LEFT, WIDTH - RIGHT, True)
    up = Scale(*span(ends, log=False, margin=0.25), HEIGHT - BOTTOM, TOP, False)
    most = max(max(p.size for p in points), 1e-12)
    parts = [_axes(across, up, x_name, y_name)]
    for p in sorted(points, key=lambda one: -one.size):
        radius = max(SMALLEST_BUBBLE, LARGEST_BUBBLE * math.sqrt(max(p.size, 0.0) / most))
        x, y = across(p.x), up(p.y)
        tip = f"{p.name}\n{y_name}: {p.y:.4g}\n{x_name}: {p.x:.4g}\n{size_name}: {p.size:.4g}"
        whisker = ""
        if p.low is not None and p.high is not None:
            tip += f"\n95 % interval: {p.low:.4g} to {p.high:.4g}"
            whisker = (
                f'<path class="whisker" d="M{x:.1f} {up(p.low):.1f}L{x:.1f} {up(p.high):.1f}"/>'
            )
        parts.append(
            f'<g class="series {colour(p.key)}" data-key="{p.key}">{whisker}'
            f'<circle class="bubble" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" '
            f'data-tip="{escape(tip)}"/></g>'
        )
    label = f"{y_name} against {x_name}, area {size_name}: {', '.join(p.name for p in points)}"
    columns = ["name", x_name, y_name, f"{y_name}, low", f"{y_name}, high", size_name]
    table: list[list[Cell]] = [[p.name, p.x, p.y, p.low, p.high, p.size] for p in points]
    return Chart({"bubbles": _svg(WIDTH, HEIGHT, label, "".join(parts))}, columns, table)


# -- shared --------------------------------------------------------------------------------------


def _axes(across: Scale, up: Scale, x_name: str, y_name: str, whole: bool = False) -> str:
    parts = []
    for value in up.ticks():
        y = up(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_label(LEFT - 6, y + 4, up.text(value), "end"))
    base = HEIGHT - BOTTOM
    parts.append(f'<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>')
    for value in across.ticks():
        if whole and not value.is_integer():
            continue
        x = across(value)
        parts.append(f'<path class="axis" d="M{x:.1f} {base}v4"/>')
        parts.append(_label(x, base + 17, across.text(value), "middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(_label(middle, HEIGHT - 5, x_name, "middle", kind="name"))
    parts.append(_label(4, 12, y_name, "start", kind="name"))
    return "".join(parts)


def _label(x: float, y: float, words: str, anchor: str, extra: str = "", kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>'
        f"{escape(words)}</text>"
    )


def _svg(width: float, height: float, label: str, body: str, extra: str = "") -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}"{extra}>{body}</svg>'
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float(v) for v in values if v is not None and math.isfinite(v)]
