"""Figures from the folder of a benchmark: growth with the length, and accuracy against speed.

from primal_attention.report.bench_figures import bubbles, growth

growth("bench/block-training-001")        # growth.png and growth.svg in the folder
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..bench import Results, match_accuracies, read_results
from ..bench.candidates import FLOOR, SOFTMAX
from ..bench.results import Growing, short
from ..runs.errors import RunError
from .style import FORMATS, INK, MUTED, PALETTE, End, label_ends, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

LABEL_GAP = 0.048  # between labels, of the height of the axes
LARGEST_BUBBLE = 1600.0  # points squared
SMALLEST_BUBBLE = 12.0
MOST_LINES = 6


class Look(NamedTuple):
    colour: str
    line: str


def growth(folder: Path | str, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Time and peak memory against length, both axes logarithmic, with the exponents of growth at
    the names: growth.png and growth.svg in the folder. More than six lines cannot be told apart:
    of more candidates softmax and the kinds of primal layers are drawn, then the others in their
    order, and the title names those left out."""
    results = read_results(folder)
    if not any(results.series(name, "seconds") for name in results.candidates):
        raise RunError(f"{folder} has no measured time; expected at least one")
    with style():
        shown = drawn(results.candidates)
        rest = [name for name in results.candidates if name not in shown]
        more = f"\nNot drawn: {', '.join(rest)}" if rest else ""
        figure = new_figure(10.0, 4.2, results.settings.title + more)
        time, memory = figure.subplots(1, 2)
        _lines(time, results, shown, "seconds", 1e3)
        _lines(memory, results, shown, "peak_mb", 1.0)
        time.set_title("Time, ms, and its exponent of growth")
        memory.set_title("Peak memory above inputs, MB, and its exponent")
        return save(figure, Path(folder) / "growth", formats)


def bubbles(
    folder: Path | str, accuracies: Mapping[str, float], *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Accuracy, {candidate: per cent}, against speed, with peak memory as the area: bubbles.png and
    bubbles.svg in the folder, at the longest length that most of the candidates reached."""
    results = read_results(folder)
    known = match_accuracies(results, dict(accuracies))
    length, measured = at_common_length(results, list(known))
    if not measured:
        raise RunError(
            "no candidate has both an accuracy and a time; expected accuracies of "
            f"{', '.join(results.candidates)}"
        )
    looks = _looks(results.candidates)
    with style():
        figure = new_figure(8.0, 5.4)
        axes = figure.subplots()
        most = max(memory for _, memory in measured.values())
        ends = []
        for name, (speed, memory) in measured.items():
            point, colour = (speed, known[name]), looks[name].colour
            area = max(SMALLEST_BUBBLE, LARGEST_BUBBLE * memory / max(most, 1e-9))
            axes.scatter(*point, s=area, color=colour, alpha=0.55, linewidths=0)
            ends.append(End(point, f"{name}, {short(memory)} MB", colour))
        axes.set_xscale("log")
        axes.margins(0.16, 0.16)
        axes.minorticks_off()
        _plain_ticks(axes.xaxis, axes.get_xlim())
        axes.set(xlabel=f"sequences per second at N = {length}", ylabel="accuracy, %")
        axes.set_title(f"{results.settings.title}\nThe area is the peak memory")
        label_ends(axes, ends, gap=LABEL_GAP, hairs=True)
        return save(figure, Path(folder) / "bubbles", formats)


# -- parts ---------------------------------------------------------------------------------------


def drawn(candidates: Sequence[str]) -> list[str]:
    """At most six of them, in their order."""

    def last(name: str) -> tuple[bool, bool]:
        return name != SOFTMAX, not name.startswith("primal") or "," in name

    chosen = sorted(candidates, key=last)[:MOST_LINES]
    return [name for name in candidates if name in chosen]


def _lines(
    axes: Axes, results: Results, shown: Sequence[str], quantity: Growing, unit: float
) -> None:
    """A line for each candidate that is shown, as far as it was measured."""
    looks = _looks(shown)
    ends = []
    for name in shown:
        series = {n: unit * v for n, v in results.series(name, quantity).items() if v > 0}
        if not series:
            continue
        lengths, values = list(series), list(series.values())
        axes.plot(lengths, values, looks[name].line, color=looks[name].colour, markersize=4)
        exponent = results.exponent(name, quantity)
        label = name if exponent is None else f"{name}  {exponent:.2f}"
        ends.append(End((lengths[-1], values[-1]), label, looks[name].colour))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("length N")
    axes.set_xticks(list(results.lengths), [f"{length:,}" for length in results.lengths])
    axes.minorticks_off()
    _plain_ticks(axes.yaxis, axes.get_ylim())
    label_ends(axes, ends, gap=LABEL_GAP, hairs=True)


def _plain_ticks(axis: Axis, limits: tuple[float, float]) -> None:
    """Numbers as people write them, and more of them where the axis spans few decades."""
    from matplotlib.ticker import LogLocator

    few = limits[1] / limits[0] < 300
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=12))
    axis.set_major_formatter(lambda value, _: f"{value:,g}")


def _looks(candidates: Sequence[str]) -> dict[str, Look]:
    """Grey for the floor, ink for softmax; the others take colours, then other lines."""
    references = {FLOOR: Look(MUTED, "o:"), SOFTMAX: Look(INK, "o-")}
    others = [name for name in candidates if name not in references]
    lines = ("o-", "s--", "^-.", "D:")
    return references | {
        name: Look(PALETTE[i % len(PALETTE)], lines[i // len(PALETTE) % len(lines)])
        for i, name in enumerate(others)
    }


def at_common_length(
    results: Results, names: Sequence[str]
) -> tuple[int, dict[str, tuple[float, float]]]:
    """The longest of the lengths at which most of the candidates were measured, and there for each
    of them sequences a second and peak memory in MB."""
    counts = {
        length: sum(length in results.series(name, "seconds") for name in names)
        for length in results.lengths
    }
    length = max(counts, key=lambda n: (counts[n], n), default=0)
    cells = {name: results.cells.get((name, length)) for name in names}
    return length, {
        name: (results.settings.batch_size / cell.seconds, cell.peak_mb)
        for name, cell in cells.items()
        if cell is not None and cell.seconds is not None and cell.peak_mb is not None
    }
