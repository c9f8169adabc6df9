"""Figures from run folders: training curves, confusion matrices, several runs side by side.

    from primal_attention.report import compare, confusion, curves

    curves("runs/my-run")        # curves.png and curves.svg in the run folder

Everything is drawn without a window; files appear whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from .history import History, read_run
from .style import FORMATS, INK, MUTED, PALETTE, label_ends, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COUNTS = 30  # classes; a larger matrix shows colours without counts


def curves(run: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Task loss, KSVD loss and accuracy by epoch: curves.png and curves.svg in the run folder."""
    history = read_run(run)
    with style():
        figure = new_figure(10.5, 3.2)
        _headline(figure, f"{history.title}\n{_outcome(history)}")
        _curve_panels(figure.subplots(1, 3), [history], [""])
        return save(figure, history.run / "curves", formats)


def confusion(run: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The confusion matrix of the result, as confusion.png and confusion.svg in the run folder."""
    history = read_run(run)
    size = min(9.0, 2.6 + 0.34 * len(history.classes))
    with style():
        figure = new_figure(size + 0.6, size)
        axes = figure.subplots()
        _matrix(axes, history)
        axes.set_title(f"{history.title}\n{fill(_outcome(history), int(10 * size))}")
        return save(figure, history.run / "confusion", formats)


def compare(
    runs: Mapping[str, Path | str],
    path: Path | str,
    *,
    matrices: bool = False,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """The curves of several runs, {name: run folder}, in one figure at path.png and path.svg; with
    matrices, their confusion matrices below."""
    if not runs:
        raise ValueError("compare was given no run; expected {name: run folder}")
    names, histories = list(runs), [read_run(run) for run in runs.values()]
    with style():
        figure = new_figure(12.5, 7.6 if matrices else 3.4)
        parts = figure.subfigures(2 if matrices else 1, 1, squeeze=False)[:, 0]
        _headline(figure, _common_title(histories))
        _curve_panels(parts[0].subplots(1, 3), histories, names)
        if matrices:
            cells = parts[1].subplots(1, len(histories), squeeze=False)[0]
            for axes, name, history, colour in zip(
                cells, names, histories, _colours(len(names)), strict=True
            ):
                _matrix(axes, history)
                axes.set_title(f"{name}: {_percent(history.accuracy)}", color=colour)
        return save(figure, Path(path), formats)


# -- panels --------------------------------------------------------------------------------------


def _curve_panels(
    panels: Sequence[Axes], histories: Sequence[History], names: Sequence[str]
) -> None:
    task, ksvd, accuracy = panels
    _lines(task, histories, names, "task_loss")
    _lines(ksvd, histories, names, "ksvd_loss")
    _lines(accuracy, histories, names, "accuracies")
    task.set_title("Task loss")
    ksvd.set_title("KSVD loss (mean of J² over the layers)")
    kinds = " / ".join(dict.fromkeys(h.split for h in histories))
    accuracy.set_title(f"{kinds.capitalize()} accuracy, %")
    for axes in panels:
        axes.set_xlabel("step" if _by_steps(histories) else "epoch")


def _lines(axes: Axes, histories: Sequence[History], names: Sequence[str], quantity: str) -> None:
    """One line per run; the selected epoch is marked in the panel of the accuracies."""
    by_steps = _by_steps(histories)
    ends, labels, colours = [], [], []
    lowest, highest = np.inf, -np.inf
    for history, name, colour in zip(histories, names, _colours(len(histories)), strict=True):
        values, chosen = getattr(history, quantity), history.epochs == history.epoch
        along = history.epochs * ((by_steps and history.config.epoch_steps) or 1)
        known = np.isfinite(values)
        if not known.any():
            continue
        axes.plot(along[known], values[known], color=colour)
        ends.append((float(along[known][-1]), float(values[known][-1])))
        labels.append(name)
        colours.append(colour)
        lowest, highest = min(lowest, values[known].min()), max(highest, values[known].max())
        if quantity == "accuracies" and chosen.any():
            axes.plot(along[chosen], values[chosen], "o", color=colour, markersize=5)
            if len(histories) == 1:
                axes.annotate(
                    f"epoch {history.epoch}", (along[chosen][0], values[chosen][0]), (0, -10),
                    textcoords="offset points", ha="center", va="top", fontsize=8, color=colour,
                )  # fmt: skip
    if not ends:
        absent = "none: no primal layer, or eta = 0"
        axes.text(0.5, 0.5, absent, transform=axes.transAxes, ha="center", color=MUTED)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    if quantity != "accuracies" and lowest > 0 and highest > 30 * lowest:
        axes.set_yscale("log")
    if len(histories) > 1:
        label_ends(axes, ends, labels, colours)


def _by_steps(histories: Sequence[History]) -> bool:
    """Whether epochs are no passes over the data, so that steps say more."""
    return all(history.config.epoch_steps is not None for history in histories)


def _matrix(axes: Axes, history: History) -> None:
    """Counts, coloured by the share of their true class; zeros stay empty."""
    counts = history.confusion  # (true, predicted)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    ticks = range(len(history.classes))
    long = max(map(len, history.classes)) > 3
    axes.set_xticks(
        ticks, history.classes, rotation=45 if long else 0, ha="right" if long else "center"
    )
    axes.set_yticks(ticks, history.classes)
    axes.set(xlabel="predicted", ylabel="true class")
    axes.grid(False)
    axes.tick_params(length=0, labelsize=8)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    if len(history.classes) > MOST_COUNTS:
        return
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if share[row, column] > 0.55 else INK
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=7.5, color=colour)


def _colours(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _headline(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=11)


def _outcome(history: History) -> str:
    """The result with what it is: no figure shows an accuracy without its protocol."""
    return f"{_percent(history.accuracy)}: {history.label} ({history.config.protocol} protocol)"


def _common_title(histories: Sequence[History]) -> str:
    tasks = ", ".join(dict.fromkeys(h.config.task for h in histories))
    labels = "; ".join(dict.fromkeys(f"{h.config.protocol} protocol: {h.label}" for h in histories))
    return f"{tasks}\n{labels}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
