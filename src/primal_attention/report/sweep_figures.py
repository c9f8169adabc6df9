"""Figures of sweeps: the map of accuracies over two settings, as in the paper's Table 6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..train.sweep.summary import Map
from .style import FORMATS, INK, MUTED, new_figure, save, style


def sweep_map(
    found: Map, path: Path | str, *, title: str = "", formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Accuracies in percent, one setting down and the other across: path.png and path.svg. Cells
    whose runs were stopped as hopeless say so; those without a result are empty."""
    values = np.array(
        [
            [np.nan if (v := found.cells.get((r, c))) is None else 100 * v for c in found.columns]
            for r in found.rows
        ]
    )
    if not np.isfinite(values).any():
        raise ValueError("the map has no finished run; expected at least one")
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    with style():
        figure = new_figure(2.4 + 0.85 * len(found.columns), 1.5 + 0.5 * len(found.rows))
        axes = figure.subplots()
        image = axes.imshow(
            values, cmap="Blues", vmin=low - 0.25 * (high - low) - 1e-9, vmax=high, aspect="auto"
        )
        axes.set_xticks(range(len(found.columns)), [f"{c}" for c in found.columns])
        axes.set_yticks(range(len(found.rows)), [f"{r}" for r in found.rows])
        axes.set(xlabel=found.across, ylabel=found.down, title=title)
        axes.grid(False)
        axes.tick_params(length=0)
        figure.colorbar(image, ax=axes, label="accuracy, %")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                dark = value > low + 0.6 * (high - low)
                text, colour = f"{value:.1f}", "white" if dark and high > low else INK
            else:
                stopped = (found.rows[i], found.columns[j]) in found.stopped
                text, colour = ("stopped" if stopped else ""), MUTED
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
        return save(figure, Path(path), formats)
