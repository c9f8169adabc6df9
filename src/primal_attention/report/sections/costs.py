"""Accuracy against speed, with memory as the area: of trainings, and of a benchmark."""

from __future__ import annotations

from ...attention import attention_info, available_attentions
from ...bench import match_accuracies
from ...bench.candidates import KINDS
from ..bench_figures import at_common_length
from ..charts import Bubble, bubbles
from .base import Section, figure, panel
from .read import Bench, Entry, Sources


def costs(sources: Sources) -> Section | None:
    """Bubbles of each task with two configurations or more, and where a benchmark measured their
    attentions, of those at its longest common length."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in sources.entries:
        groups.setdefault((entry.config.task, entry.label), []).append(entry)
    panels = []
    for number, ((task, label), members) in enumerate(groups.items()):
        figures = [_of_trainings(members, number, label, sources)]
        figures += [_of_bench(bench, members, number, sources) for bench in sources.benches]
        if drawn := [one for one in figures if one]:
            panels.append(panel(drawn, [(one.key, one.name) for one in members], task))
    if not panels:
        return None
    return Section("costs", "Accuracy, speed and memory", "".join(panels))


def _of_trainings(entries: list[Entry], number: int, label: str, sources: Sources) -> str:
    points = []
    for entry in entries:
        seconds, memory = entry.mean_of("seconds"), entry.mean_of("peak_memory_mb")
        if seconds and memory:
            low, high = entry.interval or (None, None)
            pace = seconds / entry.config.epochs
            points.append(Bubble(entry.name, entry.key, pace, entry.mean, memory, low, high))
    if len(points) < 2:
        return ""
    y_name = entries[0].measure.axis
    chart = bubbles(points, x_name="seconds an epoch", y_name=y_name, size_name="peak memory, MB")
    note = (
        f"{label}. Area: peak memory of the process. Seconds are those of the training as it ran, "
        "whatever else the machine did; primal bench measures with care."
    )
    return figure(f"cost {number}", "Accuracy against training time", chart, sources.commands, note)


def _of_bench(bench: Bench, entries: list[Entry], number: int, sources: Sources) -> str:
    known = [(e, name) for e in entries if (name := candidate(e)) is not None]
    asked = [
        (entry, text)
        for entry, name in known
        for text in match_accuracies(bench.results, {name: entry.mean})
    ]
    length, measured = at_common_length(bench.results, [text for _, text in asked])
    points = [
        Bubble(entry.name, entry.key, measured[text][0], entry.mean, measured[text][1])
        for entry, text in asked
        if text in measured
    ]
    if len(points) < 2:
        return ""
    chart = bubbles(
        points, x_name=f"sequences a second at N = {length}", y_name=entries[0].measure.axis,
        size_name="peak memory, MB",
    )  # fmt: skip
    return figure(
        f"cost {number} {bench.name}", "Accuracy against measured speed", chart,
        [bench.results.command, *sources.commands], bench.results.settings.title,
    )  # fmt: skip


def candidate(entry: Entry) -> str | None:
    """What a benchmark calls the attention of an entry; None where its layers differ or are not
    known here."""
    names = set(entry.config.attention)
    name = entry.config.attention[0]
    if len(names) > 1 or name not in available_attentions():
        return None
    return f"{name}:{entry.config.weights}" if KINDS in attention_info(name).options else name
