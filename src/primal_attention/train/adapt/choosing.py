"""Which attentions are adapted, where a measurement chooses: once for a folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...convert import Plan, plan
from ...runs.errors import RunError
from ...runs.files import explained, read_object, write_json
from .loop import Tell

BATCHES = 8  # that are measured on, at most
FILE = "chosen.json"


def measured_choice(
    model: nn.Module,
    layers: Any,
    train: Sequence[Any],
    asked: dict[str, Any],
    folder: Path | None,
    tell: Tell | None,
    **options: Any,
) -> Plan:
    """The plan of what `asked` (count, budget, length) chooses among `layers`. What was chosen is
    kept in the folder, so that an adaptation that continues does not measure again."""
    path = None if folder is None else folder / FILE
    told = {name: str(value) for name, value in {**asked, "layers": layers}.items()}
    names = None if path is None else _known(path, told)
    if names is not None:
        return plan(model, lambda name, _: name in names, length=asked["length"], **options)
    few = train[:: math.ceil(len(train) / BATCHES)]
    found = plan(model, layers, batches=few, tell=tell, **asked, **options)
    if path is not None:
        with explained(f"write into {folder}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"asked": told, "names": [row.name for row in found.changes]})
    return found


def _known(path: Path, told: dict[str, str]) -> list[str] | None:
    """The names that were chosen for the same request."""
    if not path.exists():
        return None
    stored = read_object(path)
    names = stored.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RunError(f"{path} has the names {names!r}; expected a list of attentions")
    return names if stored.get("asked") == told else None
