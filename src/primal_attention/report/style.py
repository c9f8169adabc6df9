"""How our figures look: palette, axes, labels at the lines, files that are never half written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..runs.extras import needs_extra
from ..runs.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

INK, MUTED, HAIRLINE = "#1f2933", "#66727f", "#e3e7ea"
# Okabe and Ito's colours, which colour-blind readers can distinguish
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
FORMATS = ("png", "svg")

_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "primal-attention",  # the same data give the same file
}


def style() -> AbstractContextManager[None]:
    """The settings of all figures, for the time of a `with`; the caller's own are not touched."""
    return _matplotlib().rc_context(_SETTINGS)  # type: ignore[no-any-return]


def new_figure(width: float, height: float, headline: str = "") -> Figure:
    """An empty figure outside pyplot: no window, no global state, drawn by Agg."""
    _matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if headline:
        figure.suptitle(headline, x=0.01, ha="left", fontsize=11)
    return figure


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write path.png, path.svg, ...: each beside its place and then renamed into it."""
    written = []
    for kind in formats:
        written.append(path.with_name(f"{path.name}.{kind}"))
        # a date in the file would make equal pictures differ
        metadata = {"Date": None} if kind == "svg" else None
        with replacing(written[-1]) as beside:
            figure.savefig(beside, format=kind, metadata=metadata)
    return written


def heat_map(
    axes: Axes,
    values: npt.NDArray[np.floating],
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[Sequence[str]],
    **shades: Any,
) -> AxesImage:
    """A map of values (rows, columns) with a text in each cell; NaN is not shaded. `shades` are
    options of `imshow`, with vmin and vmax."""
    image = axes.imshow(values, cmap="Blues", **shades)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(False)
    axes.tick_params(length=0, labelsize=8)
    dark = shades["vmin"] + 0.55 * (shades["vmax"] - shades["vmin"])
    for (row, column), value in np.ndenumerate(values):
        colour = MUTED if np.isnan(value) else "white" if value > dark else INK
        text = texts[row][column]
        axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
    return image


class End(NamedTuple):
    """The end of a line, or another point, with its name."""

    point: tuple[float, float]
    name: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[End], *, gap: float = 0.075, hairs: bool = False) -> None:
    """The names right of the axes, pushed apart where they are close; with `hairs`, a thin line
    joins each to its point."""
    limits = axes.get_xlim(), axes.get_ylim()
    to_view = axes.transData + axes.transAxes.inverted()
    heights = spread([float(to_view.transform(end.point)[1]) for end in ends], gap)
    for (point, name, colour), height in zip(ends, heights, strict=True):
        hair = {"arrowstyle": "-", "color": colour, "lw": 0.4, "relpos": (0, 0.5)}
        axes.annotate(
            name, point, (1.05 if hairs else 1.02, height), xycoords="data",
            textcoords="axes fraction", color=colour, va="center", ha="left", fontsize=8,
            annotation_clip=False, arrowprops=hair if hairs else None,
        )  # fmt: skip
    axes.set_xlim(limits[0])
    axes.set_ylim(limits[1])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in [0, 1], moved as little as needed until neighbours are a gap apart."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = [min(max(heights[i], 0.0), 1.0) for i in order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    placed[-1:] = [min(height, 1.0) for height in placed[-1:]]
    for i in range(len(placed) - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - gap)
    out = [0.0] * len(placed)
    for i, height in zip(order, placed, strict=True):
        out[i] = height
    return out


def _matplotlib() -> Any:
    with needs_extra("plot", "figures need"):
        import matplotlib
    return matplotlib
