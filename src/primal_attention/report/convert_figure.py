"""The attentions of a model before and after a conversion, as a picture.

conversion(plan(model), "layers")        # layers.png and layers.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..grammar import show_number
from .style import FORMATS, HAIRLINE, INK, MUTED, PALETTE, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..convert import Plan
    from ..convert.planning import Row

OLD, NEW = "#c3cad1", PALETTE[0]
CONVERTED = "converted already"  # the note of such a row
MOST_NAMES = 40  # layers; of a deeper model every second, third, ... name is shown


def conversion(plan: Plan, path: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Which attentions change, and parameters and cost of each; the input is at the bottom."""
    rows = plan.rows
    changed = [row.settings is not None for row in rows]
    with style():
        title = f"{plan.model.rpartition('.')[2]}: {sum(changed)} of {len(rows)} attentions change"
        title += "\nUntrained, the converted model is another function."
        figure = new_figure(11.5, min(14.0, 2.0 + 0.34 * len(rows)), title)
        grid = figure.subplots(1, 3, sharey=True, width_ratios=(1.1, 1, 1))
        _stack(grid[0], rows)
        _bars(grid[1], [r.parameters for r in rows], [r.parameters_after for r in rows], changed)
        grid[1].set_title("Parameters")
        flops = [r.flops / plan.length for r in rows], [r.flops_after / plan.length for r in rows]
        _bars(grid[2], *flops, changed)
        grid[2].set_title(f"FLOPs a token at length {plan.length:,}")
        return save(figure, Path(path), formats)


def _stack(axes: Axes, rows: Sequence[Row]) -> None:
    """Two columns of boxes, before and after."""
    for place, row in enumerate(rows):
        new = row.settings is not None
        for column, (text, colour) in enumerate(_boxes(row)):
            axes.barh(place, 0.92, left=column, height=0.78, color=colour)
            ink = "white" if new and column else INK
            axes.text(column + 0.46, place, text, ha="center", va="center", color=ink, fontsize=7.5)
        if new:
            axes.annotate(
                "", (1.0, place), (0.92, place),
                arrowprops={"arrowstyle": "->", "color": MUTED, "lw": 1.0},
            )  # fmt: skip
    every = 1 + len(rows) // MOST_NAMES
    places = range(0, len(rows), every)
    axes.set_yticks(places, [rows[i].name for i in places])
    axes.set_xticks([0.46, 1.46], ["before", "after"])
    axes.set_xlim(-0.02, 1.94)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(False)
    axes.tick_params(length=0, labelsize=8)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title("Attentions, input at the bottom")


def _boxes(row: Row) -> tuple[tuple[str, str], tuple[str, str]]:
    kind = "primal already" if row.note == CONVERTED else "softmax"
    if row.settings is None:
        return (kind, OLD), (kind, OLD)
    new = row.settings.get("attention")
    new = new or f"primal {row.settings['weights']}, s = {row.settings['rank']}"
    return (kind, OLD), (new, NEW)


def _bars(
    axes: Axes, before: Sequence[float], after: Sequence[float], changed: Sequence[bool]
) -> None:
    """Grey is before, blue is after; an attention that stays has one bar."""
    for place, (old, new, differs) in enumerate(zip(before, after, changed, strict=True)):
        if differs:
            axes.barh(place + 0.2, old, height=0.36, color=OLD)
            axes.barh(place - 0.2, new, height=0.36, color=NEW)
            axes.text(
                new, place - 0.2, f" {show_number(new)}", va="center", fontsize=7.5, color=NEW
            )
        else:
            axes.barh(place, old, height=0.36, color=OLD)
    axes.margins(x=0.15)
    axes.grid(True, axis="x", color=HAIRLINE)
    axes.grid(False, axis="y")
    axes.tick_params(labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: show_number(value))
