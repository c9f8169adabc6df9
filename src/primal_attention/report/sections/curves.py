"""Training curves: task loss, KSVD loss and accuracy (or score) by epoch, a line for each run."""

from __future__ import annotations

from ..charts import Mark, Series, lines
from ..runs import Curve, Trained
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
        epochs, series = run_series([(e, run, getattr(run, quantity)) for e, run in runs])
        if series:
            chart = lines(epochs, series, x_name="epoch", y_name=name)
            note = "Mean over the training cases of an epoch."
            figures.append(figure(f"curve {name} {title}", caption, chart, commands, note))
        else:
            said.append(f"No {name}: no primal layer was trained with η > 0.")
    measure = entries[0].measure
    epochs, series = run_series([(entry, run, run.values) for entry, run in runs])
    if len(epochs) < 2:  # a point is no curve
        said.append(f"Evaluated once, so {measure.name} has no curve.")
        return panel(figures, [(e.key, e.name) for e in entries], title) + notes(said)
    marks = []
    for entry, run in runs:
        if (value := run.values.get(run.chosen)) is not None:
            words = f"seed {run.seed}: epoch {run.chosen}, {run.measure.text(value)}"
            marks.append(Mark(run.chosen, value, entry.key, words))
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


def run_series(curves: list[tuple[Entry, Trained, Curve]]) -> tuple[list[int], list[Series]]:
    """The epochs or steps, and a line for each run that has a curve."""
    places = sorted({place for *_, curve in curves for place in curve})
    series = []
    for entry, run, curve in curves:
        name = entry.name if len(entry.runs) == 1 else f"{entry.name}, seed {run.seed}"
        if curve:
            series.append(Series(name, entry.key, [curve.get(place) for place in places]))
    return places, series
