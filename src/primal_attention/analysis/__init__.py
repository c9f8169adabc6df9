"""What an attention does, what it costs, and how sure a model is."""

from . import calibration
from .cost import Cost, crossing, largest_length, layer_cost
from .diagnostics import KSVDDiagnostics, LayerDiagnostics, ksvd_diagnostics
from .flow import Flow, LayerFlow, attention_flow
from .roofline import Machine, fitted, measured_crossing, predicted_crossing
from .sampling import draws
from .shape import Shape, shape_for
from .spectra import LayerSpectrum, Spectrum, spectrum

__all__ = [
    "Cost",
    "Flow",
    "KSVDDiagnostics",
    "LayerDiagnostics",
    "LayerFlow",
    "LayerSpectrum",
    "Machine",
    "Shape",
    "Spectrum",
    "attention_flow",
    "calibration",
    "crossing",
    "draws",
    "fitted",
    "ksvd_diagnostics",
    "largest_length",
    "layer_cost",
    "measured_crossing",
    "predicted_crossing",
    "shape_for",
    "spectrum",
]
