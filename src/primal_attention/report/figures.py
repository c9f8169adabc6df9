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

from .runs import Trained, read_run
from .style import FORMATS, MUTED, PALETTE, End, heat_map, label_ends, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COUNTS = 30  # classes; a larger matrix shows colours without counts


def curves(run: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Task loss, KSVD loss and accuracy by epoch: curves.png and curves.svg in the run folder."""
    found = read_run(run)
    with style():
        figure = new_figure(10.5, 3.2, f"{found.title}\n{_outcome(found)}")
        _curve_panels(figure.subplots(1, 3), [found], [""])
        return save(figure, found.path / "curves", formats)


def confusion(run: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The confusion matrix of the result, as confusion.png and confusion.svg in the run folder."""
    found = read_run(run)
    size = min(9.0, 2.6 + 0.34 * len(found.classes))
    with style():
        figure = new_figure(size + 0.6, size)
        axes = figure.subplots()
        _matrix(axes, found)
        axes.set_title(f"{found.title}\n{fill(_outcome(found), int(10 * size))}")
        return save(figure, found.path / "confusion", formats)


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
    names, found = list(runs), [read_run(run) for run in runs.values()]
    with style():
        figure = new_figure(12.5, 7.6 if matrices else 3.4, _common_title(found))
        parts = figure.subfigures(2 if matrices else 1, 1, squeeze=False)[:, 0]
        _curve_panels(parts[0].subplots(1, 3), found, names)
        if matrices:
            cells = parts[1].subplots(1, len(found), squeeze=False)[0]
            for axes, name, run, colour in zip(
                cells, names, found, _colours(len(names)), strict=True
            ):
                _matrix(axes, run)
                axes.set_title(f"{name}: {run.value:.1f} %", color=colour)
        return save(figure, Path(path), formats)


# -- panels --------------------------------------------------------------------------------------


def _curve_panels(panels: Sequence[Axes], runs: Sequence[Trained], names: Sequence[str]) -> None:
    task, ksvd, accuracy = panels
    _lines(task, runs, names, "task_loss")
    _lines(ksvd, runs, names, "ksvd_loss")
    _lines(accuracy, runs, names, "values")
    task.set_title("Task loss")
    ksvd.set_title("KSVD loss (mean of J² over the layers)")
    kinds = " / ".join(dict.fromkeys(run.judged for run in runs))
    accuracy.set_title(f"{kinds.capitalize()} accuracy, %")
    for axes in panels:
        axes.set_xlabel("step" if _by_steps(runs) else "epoch")


def _lines(axes: Axes, runs: Sequence[Trained], names: Sequence[str], quantity: str) -> None:
    """One line per run; the selected epoch is marked in the panel of the accuracies."""
    by_steps = _by_steps(runs)
    ends: list[End] = []
    seen: list[float] = []
    for run, name, colour in zip(runs, names, _colours(len(runs)), strict=True):
        curve: dict[int, float] = getattr(run, quantity)
        if not curve:
            continue
        steps = (by_steps and run.config.epoch_steps) or 1  # of an epoch
        along, values = [steps * epoch for epoch in curve], list(curve.values())
        axes.plot(along, values, color=colour)
        ends.append(End((float(along[-1]), values[-1]), name, colour))
        seen += values
        if quantity == "values" and run.chosen in curve:
            point = steps * run.chosen, curve[run.chosen]
            axes.plot(*point, "o", color=colour, markersize=5)
            if len(runs) == 1:
                axes.annotate(
                    f"epoch {run.chosen}", point, (0, -10),
                    textcoords="offset points", ha="center", va="top", fontsize=8, color=colour,
                )  # fmt: skip
    if not ends:
        absent = "none: no primal layer, or eta = 0"
        axes.text(0.5, 0.5, absent, transform=axes.transAxes, ha="center", color=MUTED)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    if quantity != "values" and min(seen) > 0 and max(seen) > 30 * min(seen):
        axes.set_yscale("log")
    if len(runs) > 1:
        label_ends(axes, ends)


def _by_steps(runs: Sequence[Trained]) -> bool:
    """Whether epochs are no passes over the data, so that steps say more."""
    return all(run.config.epoch_steps is not None for run in runs)


def _matrix(axes: Axes, run: Trained) -> None:
    """Counts, shaded by the share of their true class; zeros stay empty."""
    counts = np.zeros((0, 0)) if run.confusion is None else run.confusion  # (true, predicted)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    few = len(run.classes) <= MOST_COUNTS
    texts = [[str(count) if count and few else "" for count in row] for row in counts.tolist()]
    heat_map(axes, share, run.classes, run.classes, texts, vmin=0.0, vmax=1.0, aspect="equal")
    if max(map(len, run.classes)) > 3:
        axes.set_xticks(axes.get_xticks(), run.classes, rotation=45, ha="right")
    axes.set(xlabel="predicted", ylabel="true class")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _colours(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _outcome(run: Trained) -> str:
    """The result with what it is: no figure shows an accuracy without its protocol."""
    return f"{run.value:.1f} %: {run.label} ({run.protocol} protocol)"


def _common_title(runs: Sequence[Trained]) -> str:
    tasks = ", ".join(dict.fromkeys(run.config.task for run in runs))
    labels = "; ".join(dict.fromkeys(f"{run.protocol} protocol: {run.label}" for run in runs))
    return f"{tasks}\n{labels}"
