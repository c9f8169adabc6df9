"""What predictions hang on, where `primal explain` was here before."""

from __future__ import annotations

from html import escape
from typing import Any

from ...runs.files import read_object
from .base import Section, notes, table
from .read import Entry, Sources

NOTE = (
    "The smallest sets found whose removal changes the class. The model was asked again without "
    "them: an intervention on its input, which says nothing about the world."
)


def explain(sources: Sources) -> Section | None:
    parts = [part for entry in sources.entries if (part := _part(entry))]
    return Section("explain", "Explanations", "".join(parts) + notes([NOTE])) if parts else None


def _part(entry: Entry) -> str:
    found: list[dict[str, Any]] = []
    for run in entry.runs:
        places = [run.path, run.path.parent] if len(entry.runs) > 1 else [run.path]
        for place in places:
            found += [read_object(path) for path in sorted(place.glob("explain-*.json"))]
    unique = {str(one.get("case")): one for one in found}
    if not unique:
        return ""
    rows = [
        [case, str(one.get("true") or ""), str(one.get("sentence", "")), str(one.get("order", ""))]
        for case, one in sorted(unique.items())
    ]
    listed = table(["case", "true class", "prediction", "order"], rows, f"explain {entry.key}")
    return f"<h3>{escape(entry.name)}</h3>{listed}"
