"""The runs that the package was published with: what became of them, not the runs themselves.

`data/published.jsonl` has an outcome a line, as a store has them, of runs that were trained by the
settings of a table; `benchmarks/publish_runs.py` adds to it. Settings that have changed since have
another hash, so that a figure never stands beside settings that did not make it.
"""

from __future__ import annotations

import json
from importlib.resources import files

from ..train.sweep import Outcome
from .cells import cells_of
from .lines import Line, trained_lines
from .paper_tables import table

TRAINED = ("table1", "table2", "table6", "table8", "table9")  # from data that their names say


def published() -> dict[str, Outcome]:
    """Every published outcome, by the hash of its settings."""
    text = (files(__package__) / "data" / "published.jsonl").read_text(encoding="utf-8")
    outcomes = map(Outcome.from_dict, map(json.loads, text.splitlines()))
    return {one.fingerprint: one for one in outcomes}


def published_lines(name: str, part: str | None = None, *, protocol: str = "paper") -> list[Line]:
    """The lines of a table with all published seeds; nothing is run, and no data is needed."""
    if name not in TRAINED:
        raise ValueError(f"{name} has no published runs; expected one of {', '.join(TRAINED)}")
    cells = cells_of(name, part, protocol=protocol, with_data=False)
    return trained_lines(table(name), cells, None, published())
