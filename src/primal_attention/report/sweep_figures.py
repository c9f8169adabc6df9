"""Figures of sweeps: the map of accuracies over two settings, as in the paper's Table 6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..train.sweep.summary import Map
from .style import FORMATS, heat_map, new_figure, save, style


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
    stopped = [
        ["stopped" if (r, c) in found.stopped else "" for c in found.columns] for r in found.rows
    ]
    texts = np.where(np.isnan(values), stopped, np.char.mod("%.1f", values)).tolist()
    with style():
        figure = new_figure(2.4 + 0.85 * len(found.columns), 1.5 + 0.5 * len(found.rows))
        axes = figure.subplots()
        image = heat_map(
            axes, values, [str(r) for r in found.rows], [str(c) for c in found.columns], texts,
            vmin=low - 0.25 * (high - low) - 1e-9, vmax=high, aspect="auto",
        )  # fmt: skip
        axes.set(xlabel=found.across, ylabel=found.down, title=title)
        figure.colorbar(image, ax=axes, label="accuracy, %")
        return save(figure, Path(path), formats)
