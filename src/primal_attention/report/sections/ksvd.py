"""J and Lambda along training, and Lambda against the singular values after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..charts import Series, heat, lines
from ..runs import Trained
from .base import Section, figure, panel
from .curves import run_series
from .learned import learned
from .read import Entry, Sources
from .spectrum import Spectra, padded, short_names, spectrum_command

MOST_POINTS = 250  # of a curve by step; each is the mean over some steps


def ksvd(sources: Sources, spectra: Spectra) -> Section | None:
    along = _along_training(sources)
    after = [
        _after_training(entry, spectra.found[entry.key]["diagnostics"]["layers"], sources)
        for entry in sources.detailed
        if spectra.found.get(entry.key, {}).get("diagnostics", {}).get("layers")
    ]
    epochs = [learned(entry, sources) for entry in sources.detailed]
    body = "".join([along, *epochs, *after])
    return Section("ksvd", "Kernel SVD", body) if body else None


def _along_training(sources: Sources) -> str:
    """J by step, the root of the mean of J² over the layers."""
    runs = [(entry, run) for entry in sources.entries for run in entry.runs if run.ksvd_by_step]
    if not runs:
        return ""
    stride = max(1, math.ceil(max(max(run.ksvd_by_step) for _, run in runs) / MOST_POINTS))
    steps, series = run_series([(entry, run, thinned(run, stride)) for entry, run in runs])
    chart = lines(steps, series, x_name="step", y_name="J")
    mean = f", mean over {stride} steps" if stride > 1 else ""
    legend = list(dict.fromkeys((entry.key, entry.name) for entry, _ in runs))
    made = figure(
        "J along training", "J along training", chart, sources.commands,
        f"Root of the mean of J² over the layers, on the training batches{mean}. 0 at a solution.",
    )  # fmt: skip
    return panel([made], legend)


def thinned(run: Trained, stride: int) -> dict[int, float]:
    """{middle step: root of the mean KSVD loss} over blocks of steps."""
    blocks: dict[int, list[float]] = {}
    for step, value in run.ksvd_by_step.items():
        blocks.setdefault((step - 1) // stride, []).append(value)
    return {
        block * stride + (stride + 1) // 2: math.sqrt(max(sum(values) / len(values), 0.0))
        for block, values in blocks.items()
    }


def _after_training(entry: Entry, layers: Sequence[dict[str, Any]], sources: Sources) -> str:
    commands = [*entry.commands, spectrum_command(entry), sources.command]
    return panel(
        [_lambda(entry, layers, commands), _objective(entry, layers, commands)],
        [(i, one["name"]) for i, one in enumerate(layers)],
        entry.name,
    )


def _lambda(entry: Entry, layers: Sequence[dict[str, Any]], commands: Sequence[str]) -> str:
    """Lambda sigma by direction: 1 at a solution."""
    longest = max(len(one["lambda_by_head"][0]) for one in layers)
    series = []
    for i, one in enumerate(layers):
        ratio = np.array(one["lambda_by_head"]) / np.array(one["inverse_sigma_by_head"])
        known = [float(v) if v > 0 else None for v in np.exp(np.log(ratio).mean(0))]
        series.append(Series(one["name"], i, padded(known, longest)))
    chart = lines(list(range(1, longest + 1)), series, x_name="direction", y_name="Λ σ")
    return figure(
        f"lambda {entry.key} {entry.name}", "Learned Λ against 1 / σ", chart, commands,
        "Λ σ by direction, geometric mean over heads, at the best epoch. 1 at a solution.",
    )  # fmt: skip


def _objective(entry: Entry, layers: Sequence[dict[str, Any]], commands: Sequence[str]) -> str:
    """J by layer and head, and angles in the tips."""
    heads = max(len(one["objective_by_head"]) for one in layers)
    values: list[list[float | None]] = []
    tips: list[list[str]] = []
    for one in layers:
        own = [float(v) for v in one["objective_by_head"]]
        angle_e = [float(np.mean(a)) for a in one["angles_e_by_head"]]
        angle_r = [float(np.mean(a)) for a in one["angles_r_by_head"]]
        tip = [
            f"{one['name']}, head {h}\nJ = {v:.3g}\nmean angle of e: {angle_e[h]:.1f}°, of r: "
            f"{angle_r[h]:.1f}°\nshare of the output from e: {one['share_e_by_head'][h]:.2f}"
            for h, v in enumerate(own)
        ]
        values.append(padded(own, heads))
        tips.append([*tip, *[""] * (heads - len(own))])
    top = max(abs(v) for row in values for v in row if v is not None) or 1.0
    chart = heat(
        values, short_names([one["name"] for one in layers]), [str(h) for h in range(heads)],
        row_name="layer", column_name="head", value_name="J",
        shades=[[abs(v or 0.0) / top for v in row] for row in values],
        texts=[["" if v is None else f"{v:.2g}" for v in row] for row in values],
        tips=tips, cell=46.0,
    )  # fmt: skip
    return figure(
        f"objective {entry.key} {entry.name}", "J by layer and head", chart, commands,
        "At the best epoch, on the inputs of the spectrum. 0 is necessary for a solution, not "
        "sufficient: the angles, at the pointer, must be 0 too.",
    )  # fmt: skip
