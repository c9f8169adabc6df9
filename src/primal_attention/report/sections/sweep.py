"""Accuracy over rank s and eta, where runs that are otherwise alike differ in both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...train.config import PLACE_FIELDS
from ..charts import heat
from .base import Section, figure
from .read import Entry, Sources

SWEPT = ("rank", "eta", "seed")


def sweep(sources: Sources) -> Section | None:
    """A map for each group of runs; None without two ranks and two values of eta in one."""
    figures = [_map(group, number, sources) for number, group in enumerate(sweeps(sources.entries))]
    if not figures:
        return None
    return Section("sweep", "Sweep over s and η", f'<div class="grid">{"".join(figures)}</div>')


def highest(group: Sequence[Entry]) -> str:
    """The best cell of a group, and how far the lowest is from it, in a sentence."""
    means = {place: statistics.fmean(values) for place, values in _cells(group).items()}
    (eta, rank), low = max(means, key=lambda place: means[place]), min(means.values())
    best, measure = means[eta, rank], group[0].measure
    return (
        f"{group[0].config.task}: of {len(means)} cells s = {rank}, η = {eta:g} has the most, "
        f"{measure.text(best)}, and {best - low:.1f} points lie between it and the least."
    )


def sweeps(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that are equal but for rank, eta and seed, with two values or more of the first
    two."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        fields = entry.config.to_dict()
        if "primal" not in entry.config.attention:
            continue
        rest = {k: v for k, v in fields.items() if k not in (*SWEPT, *PLACE_FIELDS)}
        groups.setdefault(repr(rest), []).append(entry)
    return [
        group
        for group in groups.values()
        if len({one.config.rank for one in group}) > 1
        and len({one.config.eta for one in group}) > 1
    ]


def _cells(group: Sequence[Entry]) -> dict[tuple[float, int], list[float]]:
    """The values of all seeds by eta and rank."""
    found: dict[tuple[float, int], list[float]] = {}
    for one in group:
        found.setdefault((one.config.eta, one.config.rank), []).extend(one.values)
    return found


def _map(group: Sequence[Entry], number: int, sources: Sources) -> str:
    ranks = sorted({one.config.rank for one in group})
    etas = sorted({one.config.eta for one in group})
    found = _cells(group)
    means = {place: statistics.fmean(values) for place, values in found.items()}
    measure = group[0].measure
    low, high = min(means.values()), max(means.values())
    places = [[(eta, rank) for rank in ranks] for eta in etas]
    # the lowest keeps a little colour: an empty cell is one that was not run
    shades = [
        [0.08 + 0.92 * (means.get(p, low) - low) / max(high - low, 1e-9) for p in row]
        for row in places
    ]
    tips = [
        [f"s = {rank}, η = {eta:g}: {measure.text(means[eta, rank])} over {len(found[eta, rank])} "
         f"run{'s' if len(found[eta, rank]) > 1 else ''}" if (eta, rank) in means else ""
         for eta, rank in row]
        for row in places
    ]  # fmt: skip
    chart = heat(
        [[means.get(place) for place in row] for row in places],
        [f"{eta:g}" for eta in etas], [str(rank) for rank in ranks],
        row_name="η", column_name="rank s", value_name=measure.axis, shades=shades, tips=tips,
        texts=[[f"{means[p]:.1f}" if p in means else "" for p in row] for row in places],
        cell=46.0,
    )  # fmt: skip
    first, best = group[0], max(means, key=lambda place: means[place])
    note = (
        f"{first.label}. Best of {len(means)} cells: s = {best[1]}, η = {best[0]:g} "
        f"({measure.text(means[best])}); choosing the best cell by these numbers favours it."
    )
    commands = [*(c for one in group for c in one.commands), sources.command]
    title = f"{first.config.task}, {first.attention}"
    return figure(f"sweep {number} {title}", title, chart, commands, note)
