"""What a run computes with, for the record."""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..version import __version__

PACKAGES = ("torch", "numpy", "lightning-fabric", "safetensors")


def environment() -> dict[str, Any]:
    """The versions and the machine that a run uses."""
    import torch

    return {
        "primal-attention": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


@functools.cache  # a look-up keeps the names of every folder that has changed since the last one
def _version(package: str) -> str:
    return version(package)


def _processor() -> str:
    """The model of the CPU, as far as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        return model.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
