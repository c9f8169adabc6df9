"""The spectrum and the KSVD diagnostics of a model that a run has trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import RunError
from ..runs.files import explained, read_json

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..analysis import KSVDDiagnostics, Spectrum

WEIGHTS = "best.safetensors"


@dataclass(frozen=True)
class Look:
    """What was seen of a model; `diagnostics` is None without primal layers."""

    spectrum: Spectrum
    diagnostics: KSVDDiagnostics | None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        found = {"spectrum": self.spectrum.to_dict()}
        if self.diagnostics is not None:
            found["diagnostics"] = self.diagnostics.to_dict()
        return found

    def __str__(self) -> str:
        parts = [self.spectrum] if self.diagnostics is None else [self.spectrum, self.diagnostics]
        return "\n\n".join(map(str, parts))


def look_at(model: nn.Module, calls: Sequence[Any], *, exact_size: int = 2048) -> Look:
    """Run a model on calls (arguments, as `analysis.spectrum` takes them) and look at its
    attentions; softmax matrices up to `exact_size` exactly."""
    from ..analysis import ksvd_diagnostics, spectrum
    from ..attention import PrimalAttention
    from ..convert import Converted

    found = spectrum(model, calls, exact_size=exact_size)
    primal = any(isinstance(module, PrimalAttention | Converted) for module in model.modules())
    return Look(found, ksvd_diagnostics(model, calls) if primal else None)


def load_run(run: Path, inputs: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """The best weights of a run, and calls with the first `inputs` cases of the set that chose its
    epoch, one each. A RunError says what the run lacks."""
    from ..tasks import get_task
    from ..tasks.classification.objective import Classification
    from ..train.checkpoint import tensors_from_bytes
    from ..train.config import RunConfig

    if not (run / WEIGHTS).exists():
        raise RunError(f"{run} has no {WEIGHTS}; expected a run that ended an epoch")
    config = RunConfig.from_dict(read_json(run / "config.json"))
    data = Classification.load(get_task(config.task), config)
    model = data.model()
    with explained(f"read {run / WEIGHTS}"):
        model.load_state_dict(tensors_from_bytes((run / WEIGHTS).read_bytes()))
    batches = [data.selection.__getitems__([i]) for i in range(min(inputs, len(data.selection)))]
    return model, [(batch.inputs, batch.padding) for batch in batches]
