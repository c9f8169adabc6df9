"""All settings of the runs side by side, and the machines and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Section, table
from .read import Sources

MOST = 6  # settings that a sentence names


def settings(sources: Sources) -> Section | None:
    if not sources.entries:
        return None
    names = [entry.name for entry in sources.entries]
    configs = [entry.runs[0].settings for entry in sources.entries]
    machines = [entry.runs[0].environment for entry in sources.entries]
    head = ["setting", *names]
    body = (
        f"<details><summary>Settings</summary>{table(head, _rows(configs), 'settings')}</details>"
        "<details><summary>Machine and versions</summary>"
        f"{table(['', *names], _rows(machines), 'environment')}</details>"
    )
    return Section("settings", "How it was run", body)


def differing(sources: Sources) -> str:
    """In what the configurations differ, or what the one is, in a sentence."""
    configs = [entry.runs[0].settings for entry in sources.entries]
    place = sources.entries[0].runs[0].environment
    machine = ", ".join(
        f"{title}{place[key]}"
        for key, title in (("processor", ""), ("torch", "torch "), ("python", "Python "))
        if place.get(key)
    )
    end = f" ({machine})" if machine else ""
    if len(configs) == 1:
        return f"{len(configs[0])} settings of one configuration{end}."
    rows = [row for row in _rows(configs) if len(set(row[1:])) > 1 and row[0] != "seed"]
    if not rows:
        return f"The {len(configs)} configurations have the same settings but for the seed{end}."
    named = ", ".join(row[0] for row in rows[:MOST]) + (", ..." if len(rows) > MOST else "")
    noun = "setting" if len(rows) == 1 else "settings"
    return f"The {len(configs)} configurations differ in {len(rows)} {noun}: {named}{end}."


def _rows(documents: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    keys = dict.fromkeys(key for document in documents for key in document)
    return [[key, *(_text(document.get(key)) for document in documents)] for key in keys]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
