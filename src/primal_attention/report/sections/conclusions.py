"""What a section says, in one sentence, before its charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from .base import percent
from .calibration import trusted
from .events import foreseen
from .explain import hanging
from .paper import outcome
from .read import Bench, Entry, Sources
from .settings import differing
from .spectrum import Spectra
from .sweep import highest, sweeps

MOST = 3  # configurations that a sentence speaks of
NEAR = 2.0  # a factor of Lambda sigma that counts as near a solution
RISING = 0.5  # points that the last tenth of the epochs has added


def conclude(section: str, sources: Sources, spectra: Spectra) -> str:
    """The sentence of a section by its id; a few, where it is about several configurations."""
    match section:
        case "verdict":
            return best_of(sources.entries)
        case "paper":
            return outcome(sources)
        case "curves":
            return " ".join(map(curve, sources.entries[:MOST]))
        case "events":
            return _first(map(foreseen, sources.detailed))
        case "confusion":
            return " ".join(map(mistakes, sources.detailed[:MOST]))
        case "calibration":
            return _first(map(trusted, sources.entries))
        case "explain":
            return _first(map(hanging, sources.entries))
        case "spectrum":
            return ranks(sources.detailed, spectra.found)
        case "ksvd":
            return solutions(sources.detailed, spectra.found) or _first(
                map(descent, sources.entries)
            )
        case "sweep":
            return _first(map(highest, sweeps(sources.entries)))
        case "costs":
            return quickest(sources.entries)
        case "bench":
            return " ".join(map(fastest, sources.benches[:MOST]))
        case "settings":
            return differing(sources)
    raise ValueError(f"no conclusion is known for the section {section!r}")


def _first(said: Iterable[str]) -> str:
    """The first few of those that have something to say."""
    return " ".join(list(islice(filter(None, said), MOST)))


def best_of(entries: Sequence[Entry]) -> str:
    """Which configuration of each task has the highest figure."""
    tasks: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        tasks.setdefault((entry.config.task, entry.label), []).append(entry)
    said = []
    for (task, label), members in list(tasks.items())[:MOST]:
        best = max(members, key=lambda entry: entry.mean)
        others = f", the highest of {len(members)}" if len(members) > 1 else ""
        seeds = "one seed" if len(best.runs) == 1 else f"{len(best.runs)} seeds"
        text = best.measure.text(best.mean)
        said.append(f"{task}: {best.name} has {text}{others} ({label}, {seeds}).")
    return " ".join(said)


def curve(entry: Entry) -> str:
    """Which epoch counts, and whether training was at its end."""
    run = entry.runs[0]
    if len(run.values) < 2:
        return f"{entry.name} was evaluated once, so there is no curve to read."
    last = max(run.values)
    late = [v for epoch, v in run.values.items() if epoch > 0.9 * last]
    early = [v for epoch, v in run.values.items() if epoch <= 0.9 * last]
    gained = max(late) - max(early) if late and early else 0.0
    rising = "; it was still rising, so more epochs may help" if gained > RISING else ""
    return f"{entry.name}: epoch {run.chosen} of {last} counts{rising}."


def mistakes(entry: Entry) -> str:
    """The most frequent confusion."""
    found = [run.confusion for run in entry.runs if run.confusion is not None]
    if not found:
        return ""
    wrong = np.sum(found, axis=0)
    total = int(wrong.sum())
    np.fill_diagonal(wrong, 0)
    errors = int(wrong.sum())
    if not errors:
        return f"{entry.name} makes no error on these {total} cases."
    classes = entry.runs[0].classes
    true, taken = np.unravel_index(int(wrong.argmax()), wrong.shape)
    return (
        f"{entry.name}: {errors} errors, most often {classes[true]} taken for {classes[taken]} "
        f"({int(wrong.max())})."
    )


def ranks(entries: Sequence[Entry], found: Mapping[int, dict[str, Any]]) -> str:
    """How many directions the attentions use."""
    said = []
    for entry in entries[:MOST]:
        layers = found.get(entry.key, {}).get("spectrum", {}).get("layers", [])
        if layers:
            used = np.mean([np.mean(one["effective_rank_by_head"]) for one in layers])
            most = max(len(one["explained_variance"]["mean"]) for one in layers)
            said.append(f"{entry.name} {used:.1f} of {most}")
    if not said:
        return "No attention matrix could be read here; the reasons stand below."
    return f"Directions that the attentions use (effective rank): {', '.join(said)}."


def solutions(entries: Sequence[Entry], found: Mapping[int, dict[str, Any]]) -> str:
    """Whether the layers are near a KSVD solution, by Lambda sigma."""
    said = []
    for entry in entries[:MOST]:
        layers = found.get(entry.key, {}).get("diagnostics", {}).get("layers", [])
        logs = []
        for one in layers:
            ratio = np.array(one["lambda_by_head"]) / np.array(one["inverse_sigma_by_head"])
            logs += np.log(ratio[ratio > 0]).tolist()
        if logs:
            middle = math.exp(float(np.median(logs)))
            near = 1 / NEAR <= middle <= NEAR
            word = "near" if near else "far from"
            end = "and 1 at one" if near else "not 1"
            said.append(f"{entry.name} is {word} a KSVD solution: Λσ is {middle:.2g}, {end}.")
    return " ".join(said)


def descent(entry: Entry) -> str:
    """How far J came down, where nothing is known of the layers after training."""
    known = entry.runs[0].ksvd_by_step or entry.runs[0].ksvd_loss
    if not known:
        return ""
    first, last = (math.sqrt(max(known[place], 0.0)) for place in (min(known), max(known)))
    if not first:
        return f"{entry.name}: J is 0 from the first step on."
    word = "fell" if last < first else "rose"
    return f"{entry.name}: J {word} from {first:.2g} to {last:.2g}; 0 at a solution."


def quickest(entries: Sequence[Entry]) -> str:
    """Of each task, which configuration takes the least time for an epoch, and what it gives up."""
    tasks: dict[tuple[str, str], list[tuple[float, Entry]]] = {}
    for entry in entries:
        if seconds := entry.mean_of("seconds"):
            group = tasks.setdefault((entry.config.task, entry.label), [])
            group.append((seconds / entry.config.epochs, entry))
    said = []
    for (task, _), members in tasks.items():
        if len(members) < 2:
            continue
        pace, quick = min(members, key=lambda one: one[0])
        slow, best = max(members, key=lambda one: one[1].mean)
        if quick is best:
            end = "and has the highest figure"
        else:
            points = best.mean - quick.mean
            end = f"{points:.1f} points below {best.name}, which takes {slow / pace:.1f} times that"
        said.append(f"{task}: {quick.name} is the quickest, {pace:.3g} s an epoch, {end}.")
    return " ".join(said[:MOST]) or "No two configurations of one task can be compared in time."


def fastest(bench: Bench) -> str:
    """Against softmax, or the quickest, at the longest length that both have."""
    times = {c: bench.results.series(c, "seconds") for c in bench.results.candidates}
    times = {c: values for c, values in times.items() if values and c not in ("floor", "none")}
    if len(times) < 2:
        return growth(bench)
    if "softmax" in times:
        length = max(times["softmax"])
        rivals = {c: v[length] for c, v in times.items() if length in v and c != "softmax"}
        if not rivals:
            return growth(bench)
        quick = min(rivals, key=lambda c: rivals[c])
        share = rivals[quick] / times["softmax"][length]
        return f"At {length:,} positions {quick} takes {percent(share)} of the time of softmax."
    length = min(max(values) for values in times.values())
    at = {c: values[length] for c, values in times.items() if length in values}
    if not at:
        return growth(bench)
    return f"At {length:,} positions {min(at, key=lambda c: at[c])} is the quickest."


def growth(bench: Bench) -> str:
    """How the time of what was measured grows, where there is nothing to compare."""
    said = []
    for name in bench.results.candidates[:MOST]:
        exponent = bench.results.exponent(name, "seconds")
        if exponent is not None:
            said.append(f"{name} N^{exponent:.2f}")
    known = ", ".join(said) if said else "too few lengths were measured to tell"
    return f"Growth of the time with the length: {known}."
