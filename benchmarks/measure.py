"""Peak memory of what a benchmark script measures, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def peak_megabytes(script: Path, *arguments: str) -> float:
    """Run `script --memory-of ...` in its own process; it prints a JSON number."""
    command = [sys.executable, str(script), "--memory-of", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))
