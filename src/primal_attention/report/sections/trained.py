"""The spectrum of a trained model: the one that `primal spectrum` left, or computed now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...runs.errors import RunError
from ...runs.files import read_json
from ..run_spectra import load_run, look_at

INPUTS = 8
EXACT_SIZE = (
    512  # longer softmax matrices are looked at by a randomised SVD: a page should not wait
)
FILE = "spectrum.json"


def read_spectrum(run: Path, inputs: int = INPUTS) -> dict[str, Any]:
    """{"spectrum": ..., "diagnostics": ... or absent}, as `primal spectrum` writes it: from
    spectrum.json in the run folder, or from the best weights on the first cases of the set that
    chose the epoch. A RunError says why there is none."""
    if (run / FILE).exists():
        found = read_json(run / FILE)
        if not isinstance(found, dict) or "layers" not in found.get("spectrum", {}):
            raise RunError(f"{run / FILE} holds no spectrum; expected what primal spectrum writes")
        return found
    return look_at(*load_run(run, inputs), exact_size=EXACT_SIZE).to_dict()
