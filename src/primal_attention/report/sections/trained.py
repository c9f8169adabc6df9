"""The spectrum of a trained model: the one that `primal spectrum` left, or computed now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...train.config import RunConfig
from ...train.data import load_data
from ...train.errors import RunError
from ...train.files import explained, read_json

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
    if not (run / "best.safetensors").exists():
        raise RunError(f"{run} has no best.safetensors; expected the weights of the best epoch")
    return _compute(run, inputs)


def _compute(run: Path, inputs: int) -> dict[str, Any]:
    from ...analysis import ksvd_diagnostics, spectrum
    from ...attention import PrimalAttention
    from ...tasks import get_task
    from ...train.checkpoint import tensors_from_bytes

    config = RunConfig.from_dict(read_json(run / "config.json"))
    data = load_data(config)
    model = get_task(config.task).model(config, data.reader.shape)
    with explained(f"read {run / 'best.safetensors'}"):
        model.load_state_dict(tensors_from_bytes((run / "best.safetensors").read_bytes()))
    batches = [data.selection.__getitems__([i]) for i in range(min(inputs, len(data.selection)))]
    calls = [(batch.inputs, batch.padding) for batch in batches]
    found = {"spectrum": spectrum(model, calls, exact_size=EXACT_SIZE).to_dict()}
    if any(isinstance(module, PrimalAttention) for module in model.modules()):
        found["diagnostics"] = ksvd_diagnostics(model, calls).to_dict()
    return found
