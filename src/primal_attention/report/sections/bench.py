"""Time and memory against length, from the folders of benchmarks."""

from __future__ import annotations

from ...bench.results import GROWING, Growing
from ...bench.table import reasons
from ..charts import Series, lines
from .base import Section, figure, notes, panel
from .read import Bench, Sources

TITLES: dict[Growing, tuple[str, str, float]] = {
    "seconds": ("Time against length", "time, ms", 1e3),
    "peak_mb": ("Peak memory against length", "memory, MB", 1.0),
}
EXPONENT = "At the pointer: the exponent of growth over the upper lengths."
NOTES: dict[Growing, str] = {
    "seconds": f"Median of the rounds. {EXPONENT}",
    "peak_mb": f"Above inputs and parameters. {EXPONENT}",
}


def bench(sources: Sources) -> Section | None:
    parts = [_one(one, sources.command) for one in sources.benches]
    return Section("bench", "Time and memory", "".join(parts)) if parts else None


def _one(found: Bench, command: str) -> str:
    results = found.results
    figures = []
    for quantity in GROWING:
        title, name, unit = TITLES[quantity]
        series = []
        for key, candidate in enumerate(results.candidates):
            values = {n: unit * v for n, v in results.series(candidate, quantity).items() if v > 0}
            if values:
                exponent = results.exponent(candidate, quantity)
                power = "" if exponent is None else f" (N^{exponent:.2f})"
                y = [values.get(n) for n in results.lengths]
                series.append(Series(f"{candidate}{power}", key, y))
        if series:
            chart = lines(
                results.lengths, series, x_name="length N", y_name=name, log_x=True, log_y=True
            )
            figures.append(
                figure(
                    f"{quantity} {found.name}",
                    title,
                    chart,
                    [results.command, command],
                    NOTES[quantity],
                )
            )
    place = results.environment
    machine = f"{place.get('processor', 'unknown processor')}, torch {place.get('torch', '?')}."
    said = [f"{results.settings.title}. {machine}", *(f"{line}." for line in reasons(results))]
    return panel(figures, list(enumerate(results.candidates)), found.name) + notes(said)
