"""Confusion matrices, summed over the seeds of a configuration."""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

from ..charts import heat
from .base import Section, figure, notes, percent, table
from .read import Entry, Sources

LARGEST_MAP = 60  # classes; more are a list of the most frequent confusions
LISTED = 20


def confusion(sources: Sources) -> Section | None:
    parts = [_matrix(entry, sources) for entry in sources.detailed if entry.runs[0].classes]
    if not parts:
        return None
    body = f'<div class="grid">{"".join(parts)}</div>{notes(sources.selection)}'
    return Section("confusion", "Confusion", body)


def _matrix(entry: Entry, sources: Sources) -> str:
    classes = list(entry.runs[0].classes)
    matrices = [r.confusion for r in entry.runs if list(r.classes) == classes]
    counts = np.sum([one for one in matrices if one is not None], axis=0)  # (true, predicted)
    title = f"{entry.name}: {percent(np.trace(counts) / max(counts.sum(), 1))}"
    if len(classes) > LARGEST_MAP:
        head = ["true class", "taken for", "cases", "share of the class"]
        listed = table(head, _frequent(counts, classes), f"confusion {entry.key} {entry.name}")
        return f"<div><h3>Most frequent confusions, {escape(title)}</h3>{listed}</div>"
    totals = np.maximum(counts.sum(1, keepdims=True), 1)
    share = counts / totals
    tips = [
        [f"true {a}, predicted {b}\n{counts[i, j]} of {totals[i, 0]} ({percent(share[i, j])})"
         for j, b in enumerate(classes)]
        for i, a in enumerate(classes)
    ]  # fmt: skip
    chart = heat(
        counts.tolist(), classes, classes,
        row_name="true class", column_name="predicted", value_name="cases",
        shades=share.tolist(), tips=tips,
        texts=[[str(n) if n else "" for n in row] for row in counts.tolist()],
        cell=28.0 if len(classes) <= 30 else 14.0,
    )  # fmt: skip
    note = f"{entry.label}; {len(matrices)} seeds together" if len(matrices) > 1 else entry.label
    return figure(
        f"confusion {entry.key} {entry.name}", title, chart, [*entry.commands, sources.command],
        f"{note}. Shaded by the share of the true class.",
    )  # fmt: skip


def _frequent(counts: npt.NDArray[np.int64], classes: list[str]) -> list[list[str]]:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:LISTED]
    pairs = [divmod(int(place), len(classes)) for place in order]
    return [
        [classes[i], classes[j], str(wrong[i, j]), percent(wrong[i, j] / counts[i].sum())]
        for i, j in pairs
        if wrong[i, j]
    ]
