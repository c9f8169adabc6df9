"""What predictions hang on, where `primal explain` was here before."""

from __future__ import annotations

import statistics
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


def hanging(entry: Entry) -> str:
    """How few units the explained predictions hang on, in a sentence; "" where nobody has asked."""
    cases = list(_read(entry).values())
    if not cases:
        return ""
    sizes = [len(one["removals"][0]["units"]) for one in cases if one.get("removals")]
    calls = statistics.median(float(one.get("calls", 0)) for one in cases)
    noun = "prediction" if len(cases) == 1 else "predictions"
    if not sizes:
        return f"{entry.name}: no small set changes any of {len(cases)} {noun} that were explained."
    most = max(sizes)
    units = "one unit" if most == 1 else f"at most {most} units"
    return (
        f"{entry.name}: {len(sizes)} of {len(cases)} explained {noun} change without {units}, "
        f"found in {calls:.0f} calls of the model (median)."
    )


def _read(entry: Entry) -> dict[str, dict[str, Any]]:
    """What `primal explain` has written, by case."""
    found: list[dict[str, Any]] = []
    for run in entry.runs:
        places = [run.path, run.path.parent] if len(entry.runs) > 1 else [run.path]
        for place in places:
            found += [read_object(path) for path in sorted(place.glob("explain-*.json"))]
    return {str(one.get("case")): one for one in found}


def _part(entry: Entry) -> str:
    unique = _read(entry)
    if not unique:
        return ""
    rows = [
        [case, str(one.get("true") or ""), str(one.get("sentence", "")), str(one.get("order", ""))]
        for case, one in sorted(unique.items())
    ]
    listed = table(["case", "true class", "prediction", "order"], rows, f"explain {entry.key}")
    return f"<h3>{escape(entry.name)}</h3>{listed}"
