"""How our figures look: palette, axes, labels at the lines, files that are never half written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.extras import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, HAIRLINE = "#1f2933", "#66727f", "#e3e7ea"
# Okabe and Ito's colours: told apart by colour-blind readers too
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


def new_figure(width: float, height: float) -> Figure:
    """An empty figure outside pyplot: no window, no global state, drawn by Agg."""
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write path.png, path.svg, ...: each beside its place and then renamed into it."""
    written = []
    for kind in formats:
        target = path.with_name(f"{path.name}.{kind}")
        beside = path.with_name(f".{path.name}.{os.getpid()}.{kind}")
        try:
            # a date in the file would make equal pictures differ
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(beside, format=kind, metadata=metadata)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
        written.append(target)
    return written


def label_ends(
    axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str]
) -> None:
    """A name at the right end of each line, pushed apart where the ends are close."""
    low, high = axes.get_ylim()
    to_view = axes.transData + axes.transAxes.inverted()
    heights = [float(to_view.transform((x, y))[1]) for x, y in points]
    for (x, y), name, colour, height in zip(points, names, colours, spread(heights), strict=True):
        axes.annotate(
            name, (x, y), (1.02, height), xycoords="data", textcoords="axes fraction",
            color=colour, va="center", ha="left", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    axes.set_ylim(low, high)


def spread(heights: Sequence[float], gap: float = 0.075) -> list[float]:
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
