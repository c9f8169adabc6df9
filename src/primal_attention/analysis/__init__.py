"""What an attention does: its spectrum, KSVD diagnostics, and what it costs."""

from .cost import Cost, crossing, largest_length, layer_cost
from .diagnostics import KSVDDiagnostics, LayerDiagnostics, ksvd_diagnostics
from .roofline import Machine, fitted, measured_crossing, predicted_crossing
from .shape import Shape, shape_for
from .spectra import LayerSpectrum, Spectrum, spectrum

__all__ = [
    "Cost",
    "KSVDDiagnostics",
    "LayerDiagnostics",
    "LayerSpectrum",
    "Machine",
    "Shape",
    "Spectrum",
    "crossing",
    "fitted",
    "ksvd_diagnostics",
    "largest_length",
    "layer_cost",
    "measured_crossing",
    "predicted_crossing",
    "shape_for",
    "spectrum",
]
