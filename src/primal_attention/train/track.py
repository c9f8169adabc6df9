"""What the attentions of a model transport while it learns: figures after every epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..analysis.optimal_transport import layer_transport, moved_rows, squared_distance

ROWS = 200  # an assignment after every epoch must not be noticed
PREFIX = "transport/"  # before the names of its tensors in a checkpoint


class TransportTracker:
    """Looks at some cases after every epoch. Its state is the rows that attentions gave at the
    first look and at the last, and the length of the path between; it goes into checkpoints."""

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}

    def look(self, model: nn.Module, calls: Sequence[Any]) -> dict[str, dict[str, float | None]]:
        """{attention: W_2, moved, gap and optimality of its map; the step since the last look, the
        distance from the first, and the efficiency of the path so far}."""
        bare = getattr(model, "module", model)  # without the wrapper of Fabric
        rows, _ = moved_rows(bare, calls, most=ROWS)
        found: dict[str, dict[str, float | None]] = {}
        for name, (x, y) in rows.items():
            given = layer_transport(name, x, y)
            record: dict[str, float | None] = {
                "distance": given.distance, "moved": given.moved, "gap": given.gap,
                "optimality": given.optimality,
            }  # fmt: skip
            record |= self._advance(name, y)
            found[name] = {key: _number(value) for key, value in record.items()}
        return found

    def _advance(self, name: str, rows: Any) -> dict[str, float | None]:
        first, last, length = (f"{PREFIX}{part}/{name}" for part in ("first", "last", "length"))
        now = torch.from_numpy(np.ascontiguousarray(rows))
        before = self.state.get(last)
        if before is None or before.shape != now.shape:
            self.state |= {
                first: now,
                last: now.clone(),
                length: torch.zeros((), dtype=torch.float64),
            }
            return {"step": 0.0, "from_first": 0.0, "efficiency": None}
        step = squared_distance(before.numpy(), rows) ** 0.5
        away = squared_distance(self.state[first].numpy(), rows) ** 0.5
        self.state |= {last: now, length: self.state[length] + step}
        whole = float(self.state[length])
        return {"step": step, "from_first": away, "efficiency": away / whole if whole else None}


def _number(value: float | None) -> float | None:
    """Six digits, to keep lines short; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
