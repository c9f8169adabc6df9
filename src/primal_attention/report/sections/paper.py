"""The paper's figures against ours, with intervals."""

from __future__ import annotations

from collections import Counter

from ...reproduce.cells import MODELS, SPELLING
from ...reproduce.paper_tables import PaperTable, matches, table
from ...reproduce.verdict import estimate, judge
from ...tasks.classification.result import ACCURACY
from .base import Section, notes
from .base import table as html_table
from .read import Entry, Sources

TABLES = {"uea": "table1", "lra": "table2"}  # of accuracies, by the first part of a task's name
UNJUDGED = "not judged"
HEAD = ["run", "set", "model", "paper", "ours", "95 % interval", "seeds", "verdict"]


def paper(sources: Sources) -> Section | None:
    """A row for each run whose set and model the paper has; None without any."""
    rows: list[list[str]] = []
    said: dict[str, None] = {}  # in order, once
    for entry in sources.entries:
        if place := find(entry):
            found, row, column = place
            rows.append(_row(entry, found, row, column))
            said |= {note.text: None for note in found.notes if note.applies(row, column)}
    if not rows:
        return None
    explained = (
        "The interval covers the seeds and the size of the test set. Reproduced: it overlaps what "
        "rounds to the printed figure. Only runs with the paper's recipe and protocol are judged."
    )
    body = html_table(HEAD, rows, "paper against ours") + notes([explained, *said])
    return Section("paper", "The paper against ours", body)


def outcome(sources: Sources) -> str:
    """How many figures of the paper were met, in a sentence."""
    verdicts = [_row(e, *place)[-1] for e in sources.entries if (place := find(e))]
    judged = [one for one in verdicts if not one.startswith(UNJUDGED)]
    noun = "figure of the paper has" if len(verdicts) == 1 else "figures of the paper have"
    said = f"{len(verdicts)} {noun} a run here"
    if not judged:
        return f"{said}; none is judged, since recipe or protocol is another."
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(judged).items())
    others = len(verdicts) - len(judged)
    return f"{said}: {counts}{f', {others} not judged' if others else ''}."


def find(entry: Entry) -> tuple[PaperTable, str, str] | None:
    """The table, row and column of the paper that an entry is about."""
    family, _, name = entry.config.task.partition("/")
    if family not in TABLES:
        return None
    found = table(TABLES[family])
    rows = [row for row in found.rows if matches(name, SPELLING.get(row, row))]
    columns = [c for c in found.columns if MODELS.get(c) == entry.config.attention]
    return (found, rows[0], columns[0]) if rows and columns else None


def _row(entry: Entry, found: PaperTable, row: str, column: str) -> list[str]:
    printed = found.figure(row, column)
    counts = entry.runs[0].confusion
    cases = 1 if counts is None else max(int(counts.sum()), 1)
    ours = estimate([value / 100 for value in entry.values], cases)
    config, recipe = entry.config, entry.runs[0].settings.get("recipe", "default")
    if recipe != "paper":
        verdict = f"{UNJUDGED}: recipe {recipe}"
    elif entry.protocol != "paper":
        verdict = f"{UNJUDGED}: {entry.protocol} protocol"
    else:
        verdict = judge(ours, printed.value, printed.rounding, found.better)
    interval = f"{ACCURACY.clip(ours.low):.1f} to {ACCURACY.clip(ours.high):.1f}"
    numbers = [printed.printed, f"{ours.mean:.1f}", interval, str(ours.seeds), verdict]
    return [entry.name, config.task, column, *numbers]
