"""What a model of events expects: types, gaps and how well they are known, one sequence in time."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from ..charts import Mark, Series, lines
from ..runs import Trained
from .base import Section, figure, panel, percent, table
from .read import Entry, Sources

LISTED = 30  # types, the most frequent ones


def events(sources: Sources) -> Section | None:
    parts = [_entry(e, sources) for e in sources.detailed if "timeline" in e.runs[0].result]
    return Section("events", "What happens next", "".join(parts)) if parts else None


def foreseen(entry: Entry) -> str:
    """What the model adds to counting, in a sentence; "" for other runs."""
    if "timeline" not in entry.runs[0].result:
        return ""
    counting = {
        name: known["accuracy"]
        for name, known in entry.runs[0].result["baselines"].items()
        if "accuracy" in known
    }
    accuracy, gap = entry.mean_of("accuracy") or 0.0, entry.mean_of("gap_loss")
    said = f"{entry.name} finds {percent(accuracy)} of the next types"
    if counting:
        best = max(counting, key=lambda name: counting[name])
        points = 100 * (accuracy - counting[best])
        said += f", {abs(points):.1f} points {'above' if points >= 0 else 'below'} {best}"
    alone = entry.runs[0].result["baselines"].get("log-normal", {}).get("gap_loss")
    if gap is not None and alone is not None:
        nats = alone - gap
        said += f"; gaps cost {abs(nats):.2f} nats {'less' if nats >= 0 else 'more'} than by one "
        said += "log-normal for all"
    return f"{said}."


def _entry(entry: Entry, sources: Sources) -> str:
    commands = [*entry.commands, sources.command]
    first = entry.runs[0]
    known = "known" if first.result["known_time"] else "not known"
    heading = f"<h3>{escape(entry.name)}: time of the event {known}</h3>"
    figures = [_calibration(entry, commands), _timeline(entry, first, commands)]
    shown = panel([one for one in figures if one])
    return f"{heading}{_against_counting(entry)}{_types(entry)}{shown}"


def _against_counting(entry: Entry) -> str:
    """The figures of the model beside those of counting."""

    def row(name: str, known: dict[str, Any]) -> list[str]:
        nats = [known.get(key) for key in ("loss", "gap_loss")]
        accuracy = known.get("accuracy")
        return [
            name, "" if accuracy is None else percent(accuracy),
            *("" if value is None else f"{value:.3f}" for value in nats),
        ]  # fmt: skip

    means = {key: entry.mean_of(key) for key in ("accuracy", "loss", "gap_loss")}
    rows = [row(f"{entry.attention}, {len(entry.runs)} seeds", means)]
    rows += [row(name, known) for name, known in entry.runs[0].result["baselines"].items()]
    head = ["predicted by", "accuracy of the type", "type, nats", "gap, nats"]
    return table(head, rows, f"events {entry.key} {entry.name}")


def _types(entry: Entry) -> str:
    """How often types came, how often they were expected, and how often the first guess was right;
    means over the seeds."""
    results = [run.result for run in entry.runs]
    names = results[0]["names"]
    observed, expected, hits = (
        np.mean([result[key] for result in results], 0) for key in ("observed", "expected", "hits")
    )
    order = np.argsort(-observed, kind="stable")[:LISTED]
    total = observed.sum()
    rows = [
        [
            str(names[i]), percent(observed[i] / total), percent(expected[i] / total),
            percent(hits[i] / observed[i]) if observed[i] else "",
        ]
        for i in order
    ]  # fmt: skip
    head = ["type", "came", "was expected", "found, where it came"]
    return table(head, rows, f"types {entry.key} {entry.name}")


def _calibration(entry: Entry, commands: list[str]) -> str:
    """Shares of the gaps below a quantile against the quantile: the diagonal where chances are
    right."""
    known = [run for run in entry.runs if run.result.get("pit")]
    if not known:
        return ""
    bins = len(known[0].result["pit"])
    chances = [i / bins for i in range(bins + 1)]
    series = [Series("right chances", 7, chances)]
    for run in known:
        below = np.concatenate([[0.0], np.cumsum(run.result["pit"])])
        series.append(Series(f"seed {run.seed}", entry.key, below.tolist()))
    chart = lines(chances, series, x_name="expected share", y_name="observed share", log_y=False)
    return figure(
        f"gaps {entry.key} {entry.name}", "Calibration of the gaps", chart, commands,
        "The share of gaps that were shorter than a quantile of what the model expected.",
    )  # fmt: skip


def _timeline(entry: Entry, run: Trained, commands: list[str]) -> str:
    """The gaps of one sequence with what was expected, and the types at the pointer."""
    shown, names = run.result["timeline"], run.result["names"]
    gaps = [max(float(gap), 0.0) or None for gap in shown["gaps"]]
    series = [Series("until the event", entry.key, gaps)]
    if "gap_0.5" in shown:
        band = (shown["gap_0.1"], shown["gap_0.9"])
        series.insert(0, Series("expected", 6, shown["gap_0.5"], band))
    marks = [
        Mark(
            number, gap, entry.key,
            f"{names[kind]} after {gap:.4g}\nchance {percent(chance)}, likeliest {names[guess]}",
        )
        for number, (gap, kind, chance, guess) in enumerate(
            zip(gaps, shown["types"], shown["chances"], shown["likeliest"], strict=True), 1
        )
        if gap is not None
    ]  # fmt: skip
    numbers = list(range(1, len(gaps) + 1))
    chart = lines(
        numbers, series, x_name="event", y_name="gap, units of the data", log_y=True, marks=marks
    )
    return figure(
        f"timeline {entry.key} {entry.name}", "One sequence in time", chart, commands,
        "The gap before every event with the median and the 10 % and 90 % quantiles of what was "
        "expected; types and their chances at the pointer.",
    )  # fmt: skip
