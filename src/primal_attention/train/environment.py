"""What a run computes with, for the record."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from ..version import __version__


def environment() -> dict[str, Any]:
    """The versions and the machine that a run uses."""
    from importlib.metadata import version

    import torch

    packages = ("torch", "numpy", "lightning-fabric", "safetensors")
    return {
        "primal-attention": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    """The model of the CPU, as far as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        return model.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
