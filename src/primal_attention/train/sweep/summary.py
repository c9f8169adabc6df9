"""What came out of a sweep: one line for every point, and the map over two settings."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runs.statistics import mean_interval
from ..config import EngineConfig
from .space import value_at
from .store import Outcome, key_of


@dataclass(frozen=True)
class Point:
    """The runs with the same settings but the seed. `accuracy` and `deviation` are over the
    `finished` seeds; `selected` is the mean accuracy on the set that chose the epochs, which is
    what points may be compared by."""

    settings: Mapping[str, Any]
    finished: int
    stopped: int
    failed: int
    open: int
    accuracy: float | None
    deviation: float | None
    selected: float | None
    seconds: float
    reason: str | None

    @property
    def state(self) -> str:
        """In words: "3 finished, 1 stopped"."""
        counts = ("finished", "stopped", "failed", "open")
        return ", ".join(f"{getattr(self, c)} {c}" for c in counts if getattr(self, c))


def summarise(
    configs: Sequence[EngineConfig], names: Sequence[str], outcomes: Mapping[str, Outcome]
) -> list[Point]:
    """The points of a sweep over `names`, in the order of its runs."""
    groups: dict[tuple[Any, ...], list[EngineConfig]] = {}
    for config in configs:
        groups.setdefault(tuple(value_at(config, name) for name in names), []).append(config)
    return [
        _point(dict(zip(names, key, strict=True)), [outcomes.get(key_of(c)) for c in group])
        for key, group in groups.items()
    ]


def best(points: Sequence[Point]) -> Point | None:
    """The point with the best accuracy on the set that chooses the epochs; None without any. It is
    not the best reported accuracy: that would be a selection on the test set."""
    known = [point for point in points if point.selected is not None]
    return max(known, key=lambda point: point.selected or 0.0, default=None)


def points_csv(points: Sequence[Point]) -> str:
    """All points as a table for other programs; accuracies are shares of one."""
    text = io.StringIO()
    fields = ("accuracy", "deviation", "selected", "finished", "stopped", "failed", "open")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*points[0].settings, *fields, "seconds", "reason"] if points else [])
    for point in points:
        row = [*point.settings.values(), *(getattr(point, field) for field in fields)]
        writer.writerow([*row, f"{point.seconds:.1f}", point.reason])
    return text.getvalue()


@dataclass(frozen=True)
class Map:
    """Accuracies over two settings, as the paper's Table 6 has them over s and eta. A cell is None
    where no run has finished; `stopped` are the cells whose runs were stopped as hopeless."""

    down: str
    across: str
    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    cells: Mapping[tuple[Any, Any], float | None]
    stopped: frozenset[tuple[Any, Any]]

    def csv(self) -> str:
        """Rows down, columns across, in percent; as in Table 6."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([f"{self.down} \\ {self.across}", *self.columns])
        for row in self.rows:
            found = [self.cells.get((row, column)) for column in self.columns]
            writer.writerow([row, *("" if f is None else f"{100 * f:.1f}" for f in found)])
        return text.getvalue()


def make_map(points: Sequence[Point], down: str, across: str) -> Map:
    """The map over two of the settings; over others, if there are any, the mean is taken."""
    groups: dict[tuple[Any, Any], list[Point]] = {}
    for point in points:
        groups.setdefault((point.settings[down], point.settings[across]), []).append(point)
    known = {
        key: [point.accuracy for point in group if point.accuracy is not None]
        for key, group in groups.items()
    }
    return Map(
        down,
        across,
        tuple(dict.fromkeys(key[0] for key in groups)),
        tuple(dict.fromkeys(key[1] for key in groups)),
        {key: statistics.fmean(values) if values else None for key, values in known.items()},
        frozenset(
            key
            for key, group in groups.items()
            if not known[key] and any(point.stopped for point in group)
        ),
    )


def _point(settings: Mapping[str, Any], found: Sequence[Outcome | None]) -> Point:
    here = [outcome for outcome in found if outcome is not None]
    ended = [one for one in here if one.status == "finished"]
    accuracies = [one.accuracy for one in ended if one.accuracy is not None]
    mean, deviation, _ = mean_interval(accuracies) if accuracies else (None, None, None)
    selected = [one.selected for one in ended if one.selected is not None]
    count = {s: sum(one.status == s for one in here) for s in ("stopped", "failed")}
    return Point(
        settings=settings,
        finished=len(ended),
        stopped=count["stopped"],
        failed=count["failed"],
        open=len(found) - len(ended) - count["stopped"] - count["failed"],
        accuracy=mean,
        deviation=deviation,
        selected=statistics.fmean(selected) if selected else None,
        seconds=sum(one.seconds for one in here),
        reason=next((one.reason for one in here if one.reason), None),
    )
