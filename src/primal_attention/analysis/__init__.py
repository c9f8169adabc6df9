"""What an attention does, what it costs, and how sure a model is."""

from . import calibration
from .cost import Cost, crossing, largest_length, layer_cost
from .diagnostics import KSVDDiagnostics, LayerDiagnostics, ksvd_diagnostics
from .explanation import Explanation, Removal, explain
from .flow import Flow, LayerFlow, attention_flow
from .graph import AttentionGraph, attention_graph
from .optimal_transport import LayerTransport, Transport, transport
from .roofline import Machine, fitted, measured_crossing, predicted_crossing
from .sampling import draws
from .shape import Shape, shape_for
from .spectra import LayerSpectrum, Spectrum, spectrum

__all__ = [
    "AttentionGraph",
    "Cost",
    "Explanation",
    "Flow",
    "KSVDDiagnostics",
    "LayerDiagnostics",
    "LayerFlow",
    "LayerSpectrum",
    "LayerTransport",
    "Machine",
    "Removal",
    "Shape",
    "Spectrum",
    "Transport",
    "attention_flow",
    "attention_graph",
    "calibration",
    "crossing",
    "draws",
    "explain",
    "fitted",
    "ksvd_diagnostics",
    "largest_length",
    "layer_cost",
    "measured_crossing",
    "predicted_crossing",
    "shape_for",
    "spectrum",
    "transport",
]
