"""A call of a layer by kernels that are compiled: in which form they may serve, and the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...distributed import WHOLE, WholeSequence
from ...kernels import dispatch
from ...kernels.anchors import anchor_weights
from ...kernels.native.ops import Before, Parameters, Results
from ...kernels.scan import running_mean
from ...kernels.triton import switch as triton
from ...theory.features import SharpMap
from ..inputs import Sequences
from .parameters import linear_parts, parameter
from .state import PrimalState

if TYPE_CHECKING:
    from .layer import PrimalAttention


def native_weights(
    layer: PrimalAttention, call: Sequences, state: PrimalState | None, shards: WholeSequence
) -> dispatch.Weights | None:
    """The kind of weights if a call is of a form that the CPU kernels know: self-attention, and no
    gradient to or from a state of tied weights."""
    if not layer.compiled:
        return None
    tied = layer.weights == "tied"
    streams = state is not None and tied
    if torch.compiler.is_compiling() and (streams or (layer.training and layer.dropout)):
        return None  # the registered operator has neither a state nor dropout
    if not (call.is_self and shards.whole) or (streams and torch.is_grad_enabled()):
        return None
    return "scan" if layer.causal and tied else layer.weights


def triton_layer(layer: PrimalAttention) -> triton.Layer | None:
    """What those of a GPU need to know of a layer; they have no causal form."""
    dropout = layer.dropout if layer.training else 0.0
    return None if layer.causal else triton.Layer(layer.weights == "tied", layer.rank, dropout)


def attend_native(
    layer: PrimalAttention,
    call: Sequences,
    state: PrimalState | None,
    dropout: float,
    *,
    want_terms: bool,
) -> tuple[Results, PrimalState | None]:
    """By the CPU kernels: what they make, and the state. A backward pass releases the ledger."""
    _, out_proj = linear_parts(layer)
    x, ignore, weights, before = call.x, call.ignore, None, None
    dual = w_e = w_r = None
    if layer.weights == "tied":
        dual = parameter(layer, "dual_weight")
        before = None if state is None else Before(state.sums, state.seen)
    else:
        w_e, w_r = parameter(layer, "w_e"), parameter(layer, "w_r")
        if state is not None:
            x, sums, seen = running_mean(x, ignore, state.sums, state.seen)
            state = PrimalState(sums, seen, None)
        elif layer.anchors and (layer.anchor_rule != "sample" or x.dtype != torch.float32):
            x, weights = anchor_weights(
                x, ignore, layer.projections(x.dtype), layer.anchor_source, WHOLE, eager=True
            )
    feature_map, readout = layer.feature_map, layer.readout()
    log_sharp: Tensor | None = None
    if isinstance(feature_map, SharpMap):
        log_sharp = feature_map.log_sharpness
        if log_sharp.shape[1] != layer.num_heads:  # the heads share it
            log_sharp = log_sharp.expand(2, layer.num_heads)
    parameters = Parameters(
        dual, w_e, w_r, weights,
        parameter(layer, "in_proj_weight"), parameter(layer, "in_proj_bias"),
        parameter(layer, "sqrt_lambda"), *readout,
        parameter(out_proj, "weight"), parameter(out_proj, "bias"), log_sharp,
    )  # fmt: skip
    results = dispatch.attend_native(
        x, ignore, parameters, feature_map,
        anchors=layer.anchors or 0, causal=layer.causal and dual is not None, before=before,
        dropout=dropout, want_terms=want_terms, went_back=layer.ledger.went_back,
    )  # fmt: skip
    if state is not None and results.after is not None:
        state = PrimalState(results.after, state.seen + WHOLE.count(x, ignore), None)
    return results, state
