"""Training curves: task loss, KSVD loss and accuracy (or score) by epoch, a line for each run."""

from __future__ import annotations

from ..charts import Mark, Series, lines
from ..runs import Trained
from .base import Section, figure, notes, panel
from .read import Entry, Sources

LOSSES = {
    "task_loss": ("Task loss", "task loss"),
    "ksvd_loss": ("KSVD loss (mean of J² over the layers)", "KSVD loss"),
}


def curves(sources: Sources) -> Section | None:
    """A panel for each task."""
    groups: dict[str, list[Entry]] = {}
    for entry in sources.entries:
        groups.setdefault(entry.config.task, []).append(entry)
    if not groups:
        return None
    several = len(groups) > 1
    parts = [_task(group, task if several else "", sources) for task, group in groups.items()]
    return Section("curves", "Training", "".join(parts))


def _task(entries: list[Entry], title: str, sources: Sources) -> str:
    runs = [(entry, run) for entry in entries for run in entry.runs]
    commands = [*(c for entry in entries for c in entry.commands), sources.command]
    figures, said = [], []
    for quantity, (caption, name) in LOSSES.items():
        epochs, series = _series(runs, quantity)
        if series:
            chart = lines(epochs, series, x_name="epoch", y_name=name)
            note = "Mean over the training cases of an epoch."
            figures.append(figure(f"curve {name} {title}", caption, chart, commands, note))
        else:
            said.append(f"No {name}: no primal layer was trained with η > 0.")
    measure = entries[0].measure
    epochs, series = _series(runs, "values")
    marks = [_mark(entry.key, run) for entry, run in runs if run.chosen in run.values]
    chart = lines(epochs, series, x_name="epoch", y_name=measure.axis, log_y=False, marks=marks)
    sets = " / ".join(dict.fromkeys(run.judged for _, run in runs))
    figures.append(
        figure(
            f"curve {measure.name} {title}",
            f"{measure.name.capitalize()} by epoch",
            chart,
            commands,
            f"On: {sets}. Dot: the weights that count.",
        )
    )
    return panel(figures, [(e.key, e.name) for e in entries], title) + notes(said)


def _series(runs: list[tuple[Entry, Trained]], quantity: str) -> tuple[list[int], list[Series]]:
    """The epochs, and a line for each run that has the quantity."""
    curves = [(entry, run, getattr(run, quantity)) for entry, run in runs]
    epochs = sorted({epoch for *_, curve in curves for epoch in curve})
    return epochs, [
        Series(run_name(e.name, run, len(e.runs)), e.key, [curve.get(i) for i in epochs])
        for e, run, curve in curves
        if curve
    ]


def run_name(entry: str, run: Trained, runs: int) -> str:
    return entry if runs == 1 else f"{entry}, seed {run.seed}"


def _mark(key: int, run: Trained) -> Mark:
    value = run.values[run.chosen]
    words = f"seed {run.seed}: epoch {run.chosen}, {run.measure.text(value)}"
    return Mark(run.chosen, value, key, words)
