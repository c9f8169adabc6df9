"""What an attention does: its spectrum, KSVD diagnostics, and what it costs.

Names are imported when they are first used: the cost model answers without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cost import Cost, crossing, largest_length, layer_cost
    from .diagnostics import KSVDDiagnostics, LayerDiagnostics, ksvd_diagnostics
    from .roofline import Machine, fitted, measured_crossing, predicted_crossing
    from .spectra import LayerSpectrum, Spectrum, spectrum

__all__ = [
    "Cost",
    "KSVDDiagnostics",
    "LayerDiagnostics",
    "LayerSpectrum",
    "Machine",
    "Spectrum",
    "crossing",
    "fitted",
    "ksvd_diagnostics",
    "largest_length",
    "layer_cost",
    "measured_crossing",
    "predicted_crossing",
    "spectrum",
]

_HOMES = {
    **dict.fromkeys(("Cost", "crossing", "largest_length", "layer_cost"), ".cost"),
    **dict.fromkeys(("KSVDDiagnostics", "LayerDiagnostics", "ksvd_diagnostics"), ".diagnostics"),
    **dict.fromkeys(("Machine", "fitted", "measured_crossing", "predicted_crossing"), ".roofline"),
    **dict.fromkeys(("LayerSpectrum", "Spectrum", "spectrum"), ".spectra"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
