"""Figures of spectra: explained variance by layer (the paper's figure 1), effective ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import FORMATS, MUTED, PALETTE, heat_map, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..analysis import LayerSpectrum, Spectrum

MOST_COLUMNS = 3  # panels side by side
MOST_NUMBERS = 16  # heads; a larger map shows colours without numbers


def explained_variance(
    spectra: Spectrum | Mapping[str, Spectrum],
    path: Path | str,
    *,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Cumulative explained variance against the number of singular values, one line a layer with
    its mean and deviation over heads and inputs: path.png and path.svg. Several spectra, {name:
    spectrum}, stand side by side on one scale, as in the paper's figure 1."""
    panels = spectra if isinstance(spectra, Mapping) else {"": spectra}
    if not panels or not any(found.layers for found in panels.values()):
        raise ValueError("explained_variance was given no layer; expected a spectrum with some")
    with style():
        figure = new_figure(5.4 * len(panels), 3.8)
        cells = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, found) in zip(cells, panels.items(), strict=True):
            for layer, colour in zip(found.layers, _colours(len(found.layers)), strict=True):
                _curve(axes, layer, colour, f"{layer.name}: {layer.kind}")
            _finish(axes, len(found.layers))
            axes.set_title(name or "Cumulative explained variance of the attention matrices")
        cells[0].set_ylabel("explained variance")
        return save(figure, Path(path), formats)


def by_layer(
    spectra: Mapping[str, Spectrum], path: Path | str, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """The same curves with a panel a layer and a line a model, {name: spectrum}: path.png and
    path.svg. Layers are matched by their order; the paper's figure 1 (c)."""
    count = max((len(found.layers) for found in spectra.values()), default=0)
    if not count:
        raise ValueError("by_layer was given no layer; expected spectra with some")
    columns = min(count, MOST_COLUMNS)
    rows = -(-count // columns)
    with style():
        figure = new_figure(4.6 * columns, 3.6 * rows)
        cells = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for number, axes in enumerate(cells.flat):
            if number >= count:
                axes.set_visible(False)
                continue
            for (name, found), colour in zip(spectra.items(), _colours(len(spectra)), strict=True):
                if number < len(found.layers):
                    layer = found.layers[number]
                    _curve(axes, layer, colour, f"{name}: {layer.kind}")
            _finish(axes, len(spectra))
            axes.set_title(f"Layer {number}")
        least = min(axes.dataLim.ymin for axes in cells.flat[:count])
        for axes in cells[:, 0]:
            axes.set_ylabel("explained variance")
            axes.set_ylim(max(0.0, np.floor(10 * least - 0.5) / 10), 1.03)
        return save(figure, Path(path), formats)


def rank_map(found: Spectrum, path: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The mean effective rank over inputs, layers down and heads across: path.png and path.svg."""
    if not found.layers:
        raise ValueError("rank_map was given no layer; expected a spectrum with some")
    heads = max(layer.heads for layer in found.layers)
    ranks = np.full((len(found.layers), heads), np.nan)
    for row, layer in enumerate(found.layers):
        ranks[row, : layer.heads] = layer.effective_rank().mean(1)
    with style():
        figure = new_figure(3.2 + 0.55 * heads, 1.6 + 0.45 * len(found.layers))
        axes = figure.subplots()
        top = max(float(np.nanmax(ranks)), 1e-12)
        few = heads <= MOST_NUMBERS
        texts = [["" if np.isnan(r) or not few else f"{r:.1f}" for r in row] for row in ranks]
        names = [f"{one.name}\n{one.kind}" for one in found.layers]
        columns = [str(h) for h in range(heads)]
        image = heat_map(axes, ranks, names, columns, texts, vmin=0.0, vmax=top, aspect="auto")
        axes.set(xlabel="head", title="Effective rank of the attention matrix, mean over inputs")
        figure.colorbar(image, ax=axes)
        return save(figure, Path(path), formats)


def _curve(axes: Axes, layer: LayerSpectrum, colour: Any, label: str) -> None:
    """Mean and deviation over heads and inputs."""
    mean, deviation = layer.curve()
    k = np.arange(1, len(mean) + 1)
    axes.plot(k, mean, color=colour, label=label)
    low, high = np.clip(mean - deviation, 0, 1), np.clip(mean + deviation, 0, 1)
    axes.fill_between(k, low, high, color=colour, alpha=0.18, linewidth=0)


def _finish(axes: Axes, lines: int) -> None:
    axes.axhline(0.9, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_ylim(0.0, 1.03)
    axes.set_xlabel("number of singular values")
    # all curves end at one, so their ends cannot carry the names
    axes.legend(loc="lower right", frameon=False, fontsize=8 if lines <= 12 else 6)


def _colours(count: int) -> list[Any]:
    """Colours that differ clearly; for deep models a scale from the first layer to the last."""
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))
