"""The machine and the versions that figures belong to."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from ..train import folder


def environment() -> dict[str, Any]:
    """What `environment.json` of a run says, with the model of the CPU."""
    return folder.environment() | {"processor": _processor()}


def _processor() -> str:
    """The model of the CPU, as far as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        return model.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
