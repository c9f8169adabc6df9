"""Reliability diagram and risk-coverage curve, from what `primal calibrate` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs.extras import is_installed
from .style import MUTED, PALETTE, new_figure, save, style


def draw_calibration(
    found: Mapping[str, Any], path: Path, *, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """path.png, where matplotlib is at hand: accuracy against confidence, and the error rate among
    the most confident, for every method."""
    if not is_installed("matplotlib"):
        return []
    with style():
        figure = new_figure(9.5, 3.6)
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":")
        for i, (name, one) in enumerate(found["methods"].items()):
            colour = PALETTE[i % len(PALETTE)]
            bins = [b for b in one["bins"] if b["count"]]
            sizes = [4 + 60 * b["count"] / sum(b["count"] for b in bins) for b in bins]
            along, up = ([b[key] for b in bins] for key in ("confidence", "accuracy"))
            ece = one["figures"]["ece"]["value"]
            left.plot(along, up, color=colour, linewidth=1.2, label=f"{name}, ECE {ece:.3f}")
            left.scatter(along, up, s=sizes, color=colour)
            aurc = one["figures"]["aurc"]["value"]
            right.plot(one["coverage"], one["risk"], color=colour, label=f"{name}, {aurc:.4f}")
        left.set(title="Reliability", xlabel="stated probability", ylabel="accuracy")
        right.set(title="Risk and coverage (AURC)", xlabel="share of cases", ylabel="error rate")
        for axes in (left, right):
            axes.legend(fontsize=7, frameon=False)
        return save(figure, path, formats)
