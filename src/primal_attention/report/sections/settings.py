"""All settings of the runs side by side, and the machines and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Section, table
from .read import Sources


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


def _rows(documents: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    keys = dict.fromkeys(key for document in documents for key in document)
    return [[key, *(_text(document.get(key)) for document in documents)] for key in keys]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
