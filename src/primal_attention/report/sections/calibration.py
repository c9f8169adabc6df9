"""How far stated probabilities are true, where `primal calibrate` was here before."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from ...analysis.calibration import Figure
from ...analysis.quantiles import Quantiles
from ...runs.errors import RunError
from ...runs.files import read_object
from ...train.calibrate import conclusion
from ..charts import Series, lines
from .base import Section, figure, notes, panel, table
from .read import Entry, Sources

FILE = "calibration.json"
FIGURES = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier", "aurc": "AURC"}
NOTE = (
    "95 % intervals of a bootstrap over cases; * differs from the first line, paired, with 0 "
    "outside the interval. Temperatures are fitted on validation cases."
)


def calibration(sources: Sources) -> Section | None:
    parts = [_part(entry, found) for entry in sources.entries if (found := _read(entry))]
    return Section("calibration", "Calibration", "".join(parts)) if parts else None


def trusted(entry: Entry) -> str:
    """How far an entry may be trusted, in a sentence; "" where nobody has asked."""
    found = _read(entry)
    return "" if found is None else f"{entry.name}: {conclusion(found)}"


def gaps_of(found: dict[str, Any]) -> Quantiles | None:
    """Of events, how well the time until the next one is known."""
    if not (gaps := found.get("gaps")):
        return None
    figures = [Figure(**gaps[name]) for name in ("error", "within")]
    return Quantiles(gaps["cases"], figures[0], figures[1], tuple(gaps["pit"]))


def _read(entry: Entry) -> dict[str, Any] | None:
    """What was written for the seeds together, or for the one run."""
    run = entry.runs[0].path
    places = [run.parent, run] if len(entry.runs) > 1 or entry.missing else [run]
    path = next((one / FILE for one in places if (one / FILE).exists()), None)
    if path is None:
        return None
    found = read_object(path)
    if not isinstance(found.get("methods"), dict) or not found["methods"]:
        raise RunError(f"{path} holds no methods; expected what primal calibrate writes")
    return found


def _part(entry: Entry, found: dict[str, Any]) -> str:
    rows = []
    for method, one in found["methods"].items():
        sure = found["differences"].get(method, {})
        cells = []
        for name in FIGURES:
            value, low, high = (one["figures"][name][key] for key in ("value", "low", "high"))
            star = "*" if sure.get(name, {}).get("sure") else ""
            cells.append(f"{value:.4f}{star} [{low:.4f}, {high:.4f}]")
        rows.append([method, *cells])
    place = _folder(entry)
    command = [*entry.commands, f"primal calibrate {place}"]
    listed = table(["method", *FIGURES.values()], rows, f"calibration {entry.key} {entry.name}")
    reliable, risk = _charts(found)
    figures = [
        figure(
            f"reliability {entry.key}", "Reliability", reliable, command,
            "Accuracy of the cases whose largest probability lies in a bin.",
        ),
        figure(
            f"risk {entry.key}", "Risk and coverage", risk, command,
            "Error rate among the most confident cases.",
        ),
    ]  # fmt: skip
    names = list(enumerate(found["methods"]))
    cases = f"{next(iter(found['methods'].values()))['cases']:,} {found.get('noun', 'cases')}"
    seeds = ", ".join(map(str, found["seeds"]))
    said = [f"On {cases} of the {found['split']} set, seeds {seeds}.", NOTE]
    if (gaps := gaps_of(found)) is not None:
        said.insert(0, f"Time until the next event: {gaps}.")
    return f"<h3>{escape(entry.name)}</h3>{listed}{notes(said)}{panel(figures, names)}"


def _charts(found: dict[str, Any]) -> tuple[Any, Any]:
    methods = list(found["methods"].values())
    middles = [(one["low"] + one["high"]) / 2 for one in methods[0]["bins"]]
    reliable = [
        Series(name, key, [b["accuracy"] if b["count"] else None for b in one["bins"]])
        for key, (name, one) in enumerate(found["methods"].items())
    ]
    reliable.append(Series("stated", len(methods), middles))
    risk = [
        Series(name, key, one["risk"]) for key, (name, one) in enumerate(found["methods"].items())
    ]
    return (
        lines(
            middles, reliable, x_name="stated probability", y_name="accuracy", log_y=False,
            limits=(0.0, 1.0),
        ),
        lines(
            methods[0]["coverage"], risk, x_name="share of cases", y_name="error rate",
            log_y=False,
        ),
    )  # fmt: skip


def _folder(entry: Entry) -> Path:
    run = entry.runs[0].path
    return run.parent if len(entry.runs) > 1 else run
