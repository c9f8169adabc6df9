"""J by layer and head, and the learned Lambda, by epoch: the first seed of a configuration."""

from __future__ import annotations

from typing import Any

from ..charts import Series, lines
from .base import figure, panel
from .read import Entry, Sources

Records = dict[int, dict[str, dict[str, list[float | None]]]]  # by epoch and layer


def learned(entry: Entry, sources: Sources) -> str:
    """Two charts, a colour a layer; nothing for runs that did not record them."""
    run = entry.runs[0]
    records: Records = run.primal_layers
    if not records:
        return ""
    epochs = sorted(records)
    names = list(dict.fromkeys(name for epoch in epochs for name in records[epoch]))
    commands = [*entry.commands, sources.command]
    where = f"On the same few cases after each epoch; seed {run.seed}."
    heads = lines(epochs, _objectives(records, epochs, names), x_name="epoch", y_name="J")
    lambdas = lines(epochs, _lambdas(records, epochs, names), x_name="epoch", y_name="Λ")
    figures = [
        figure(
            f"J by head {entry.key} {entry.name}", "J by layer and head along training", heads,
            commands, f"A line a head. {where} 0 at a solution.",
        ),
        figure(
            f"lambda by epoch {entry.key} {entry.name}", "Learned Λ along training", lambdas,
            commands, "Median over heads and directions; the band holds the middle 80 %.",
        ),
    ]  # fmt: skip
    return panel(figures, list(enumerate(names)), f"{entry.name}: along training")


def _objectives(records: Records, epochs: list[int], names: list[str]) -> list[Series]:
    series = []
    for key, name in enumerate(names):
        found = [_values(records, epoch, name, "objective") for epoch in epochs]
        for head in range(max(map(len, found))):
            values = [one[head] if head < len(one) else None for one in found]
            series.append(Series(f"{name}, head {head}", key, values))
    return series


def _lambdas(records: Records, epochs: list[int], names: list[str]) -> list[Series]:
    series = []
    for key, name in enumerate(names):
        found = [_values(records, epoch, name, "lambda") for epoch in epochs]
        known = [one if len(one) == 3 and None not in one else None for one in found]
        middle = [None if one is None else one[1] for one in known]
        band: Any = None
        if None not in known:  # a band has no gaps
            band = ([one[0] for one in known if one], [one[2] for one in known if one])
        series.append(Series(name, key, middle, band))
    return series


def _values(records: Records, epoch: int, name: str, quantity: str) -> list[float | None]:
    return records[epoch].get(name, {}).get(quantity, [])
