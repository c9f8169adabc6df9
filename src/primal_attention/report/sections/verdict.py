"""What was run and how good it is: a card for each configuration, and the comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape

from ..charts import colour
from .base import Section, made_by, notes, percent, table
from .read import MOST_DETAILED, Entry, Sources

EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"  # never at the end of a line


def verdict(sources: Sources) -> Section | None:
    """Cards with accuracy, interval and what the accuracy is; None without runs."""
    if not sources.entries:
        return None
    if len(sources.entries) > MOST_DETAILED:
        body, said = _list(sources.entries), []
    else:
        cards = "".join(_card(entry, len(sources.entries) > 1) for entry in sources.entries)
        body, said = f'<div class="cards">{cards}</div>', comparisons(sources.entries)
    return Section("verdict", "Verdict", body + notes([*said, *sources.notes]))


def _list(entries: Sequence[Entry]) -> str:
    """Many configurations, the best of a task first."""
    order = sorted(entries, key=lambda entry: (entry.config.task, -entry.mean))
    head = ["run", "task", "attention", "result", "95 % interval", "seeds", "what it is"]
    rows = []
    for entry in order:
        ends = entry.interval
        interval = "" if ends is None else f"{ends[0]:.1f} to {entry.measure.text(ends[1])}"
        what = [_attention(entry), entry.measure.text(entry.mean), interval, str(len(entry.runs))]
        label = f"{entry.protocol}: {entry.label}" if entry.protocol else entry.label
        rows.append([entry.name, entry.config.task, *what, label])
    return table(head, rows, "verdict")


def _card(entry: Entry, several: bool) -> str:
    config, interval, measure = entry.config, entry.interval, entry.measure
    spread = ""
    if interval is not None:
        spread = f"95 % interval of the mean: {interval[0]:.1f} to {measure.text(interval[1])}"
    badge = ""
    if entry.protocol is not None:
        kind = "badge warn" if entry.protocol == "paper" else "badge"  # chosen on the test set
        badge = f'<span class="{kind}">{escape(entry.protocol)}</span> '
    facts = {"task": config.task, "attention": _attention(entry), **_numbers(entry)}
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    missing = notes(f"Not in the mean: {line}." for line in entry.missing)
    swatch = f'<i class="{colour(entry.key)}"></i>' if several else ""
    return (
        f'<article class="card"><h3>{swatch}{escape(entry.name)}</h3>'
        f'<p class="score">{escape(measure.text(entry.mean))}</p><p>{escape(spread)}</p>'
        f"<p>{badge}{escape(entry.label)}</p><dl>{rows}</dl>{missing}"
        f"{made_by(entry.commands)}</article>"
    )


def _attention(entry: Entry) -> str:
    config = entry.config
    if "primal" not in config.attention:
        return entry.attention
    numbers = f"s = {config.rank}, η = {config.eta:g}".replace(" = ", EQUALS)
    return f"{entry.attention}; {config.weights} weights, {numbers}"


def _numbers(entry: Entry) -> dict[str, str]:
    each = [f"{run.seed}: {run.measure.text(run.value)}" for run in entry.runs]
    facts = {"seeds" if len(each) > 1 else "seed": ", ".join(each)}
    counts = entry.runs[0].confusion
    if counts is not None:
        largest = percent(counts.sum(1).max() / max(counts.sum(), 1))
        facts["evaluated on"] = f"{counts.sum():,} cases, {len(counts)} classes"
        facts["largest class"] = f"{largest} of the cases"
    parameters, memory = entry.mean_of("parameters"), entry.mean_of("peak_memory_mb")
    seconds = entry.mean_of("seconds")
    if parameters is not None:
        facts["parameters"] = f"{parameters:,.0f}"
    if seconds is not None:
        facts["training"] = f"{_time(seconds)} a run, {entry.config.epochs} epochs"
    if memory is not None:
        facts["peak memory"] = f"{memory:,.0f} MB"
    return facts


def comparisons(entries: Sequence[Entry]) -> list[str]:
    """A sentence on the best and each other configuration of one task, protocol and label, with the
    95 % interval of the difference by Welch's t-test where both have two seeds or more."""
    groups: dict[tuple[str, str | None, str], list[Entry]] = {}
    for entry in entries:
        group = entry.config.task, entry.protocol, entry.label
        groups.setdefault(group, []).append(entry)
    found = []
    for (task, protocol, _), members in groups.items():
        where = task if protocol is None else f"{task}, {protocol} protocol"
        best, *others = sorted(members, key=lambda entry: -entry.mean)
        for other in others:
            points = best.mean - other.mean
            much = f"{points:.1f} points above" if points >= 0.05 else "level with"
            said = f"{where}: {best.name} is {much} {other.name}"
            found.append(f"{said}{_certainty(best, other)}.")
    return found


def _certainty(best: Entry, other: Entry) -> str:
    interval = welch_interval(best.values, other.values)
    if interval is None:
        return "; one seed does not tell whether that is chance"
    low, high = interval
    clear = "" if low > 0 else ", so it may be chance"
    return f" (95 % interval of the difference {low:.1f} to {high:.1f} points{clear})"


def welch_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of mean(a) - mean(b), variances unequal; None with a single value."""
    if min(len(a), len(b)) < 2:
        return None
    from scipy.stats import t

    difference = statistics.fmean(a) - statistics.fmean(b)
    shares = [statistics.variance(values) / len(values) for values in (a, b)]
    if sum(shares) == 0:
        return difference, difference
    below = sum(s**2 / (len(values) - 1) for s, values in zip(shares, (a, b), strict=True))
    half = float(t.ppf(0.975, sum(shares) ** 2 / below)) * math.sqrt(sum(shares))
    return difference - half, difference + half


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
