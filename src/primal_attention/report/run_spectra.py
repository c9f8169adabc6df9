"""The spectrum and the KSVD diagnostics of a model that a run has trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..reproduce.spectra import load_run as load_run
from ..runs.errors import RunError
from ..runs.files import read_object

if TYPE_CHECKING:
    from torch import nn

    from ..analysis import Flow, KSVDDiagnostics, Spectrum

FILE = "spectrum.json"
INPUTS = 8  # cases that a page looks at
EXACT_SIZE = 512  # longer softmax matrices take a randomised SVD: a page should not wait


@dataclass(frozen=True)
class Look:
    """What was seen of a model; `diagnostics` is None without primal layers, `flow` unless groups
    were asked for."""

    spectrum: Spectrum
    diagnostics: KSVDDiagnostics | None
    flow: Flow | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        found = {"spectrum": self.spectrum.to_dict()}
        if self.diagnostics is not None:
            found["diagnostics"] = self.diagnostics.to_dict()
        if self.flow is not None:
            found["flow"] = self.flow.to_dict()
        return found

    def __str__(self) -> str:
        parts = (self.spectrum, self.diagnostics, self.flow)
        return "\n\n".join(str(one) for one in parts if one is not None)


def look_at(
    model: nn.Module, calls: Sequence[Any], *, exact_size: int = 2048, groups: Any = None
) -> Look:
    """Run a model on calls (arguments, as `analysis.spectrum` takes them) and look at its
    attentions; softmax matrices up to `exact_size` exactly. `groups` as `attention_flow` has
    them."""
    from ..analysis import attention_flow, ksvd_diagnostics, spectrum
    from ..attention import PrimalAttention
    from ..convert import Converted

    found = spectrum(model, calls, exact_size=exact_size)
    primal = any(isinstance(module, PrimalAttention | Converted) for module in model.modules())
    flow = None if groups is None else attention_flow(model, calls, groups)
    return Look(found, ksvd_diagnostics(model, calls) if primal else None, flow)


def read_spectrum(run: Path, inputs: int = INPUTS) -> dict[str, Any]:
    """{"spectrum": ..., "diagnostics": ... or absent}, as `primal spectrum` writes it: from
    spectrum.json in the run folder, or from the best weights on the first cases of the set that
    chose the epoch. A RunError says why there is none."""
    if (run / FILE).exists():
        found = read_object(run / FILE)
        spectrum = found.get("spectrum")
        if not isinstance(spectrum, dict) or "layers" not in spectrum:
            raise RunError(f"{run / FILE} holds no spectrum; expected what primal spectrum writes")
        return found
    return look_at(*load_run(run, inputs), exact_size=EXACT_SIZE).to_dict()
