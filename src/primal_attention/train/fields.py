"""What the settings say of themselves: the line of help that stands beside each field."""

from __future__ import annotations

import dataclasses

from .config import EngineConfig


def help_of(kind: type[EngineConfig], name: str) -> str:
    """The line of help of a setting: `help_of(RunConfig, "rank")`."""
    return str(_fields(kind)[name].metadata["help"])


def panels(*kinds: type[EngineConfig]) -> dict[str, dict[str, dataclasses.Field[object]]]:
    """The fields that stand in panels of `--help`, by panel and name; of several kinds of settings
    that share a field, the first one's."""
    found: dict[str, dict[str, dataclasses.Field[object]]] = {}
    for kind in kinds:
        for name, field in _fields(kind).items():
            if panel := field.metadata.get("panel"):
                found.setdefault(panel, {}).setdefault(name, field)
    return found


def _fields(kind: type[EngineConfig]) -> dict[str, dataclasses.Field[object]]:
    return {field.name: field for field in dataclasses.fields(kind)}
