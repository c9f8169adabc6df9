"""Folding: the exact inference form of layers with free weights.

Nothing stands between phi and the output but linear maps, so they are multiplied once. Per head,
with w_out = W_o W_c (d x 2s): either the s scores are kept, or, where s is large, not even those:

    out = w_out [W_e^T phi_q ; W_r^T phi_k] + c          2 s (p + d) products a head and position
    out = A phi_q + B phi_k + c                          2 p d
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TypeVar

import torch
from torch import Tensor, nn

from ...kernels.folded import features_are_cheaper, fold_weights
from .layer import PrimalAttention

M = TypeVar("M", bound=nn.Module)


def fold_(model: M) -> M:
    """Fold every primal layer with free weights in a model, in place; returns the model.

    Outputs stay the same; training, `ksvd_loss` and the parameters W_e, W_r, Lambda, W_c are gone.
    Fold a deepcopy to keep the original.
    """
    layers = [m for m in model.modules() if isinstance(m, PrimalAttention) and not m.folded]
    free = [layer for layer in layers if layer.weights == "free"]
    if not free:
        kinds = ", ".join(sorted({layer.weights for layer in layers})) or "none"
        raise ValueError(
            f'there is no layer to fold; expected primal layers with weights="free", found: {kinds}'
        )
    for layer in free:
        _fold(layer)
    return model


@torch.no_grad()
def _fold(layer: PrimalAttention) -> None:
    dtype = layer.in_proj_weight.dtype
    maps, projections = layer.maps(dtype), layer.projections(dtype)  # (d, 2h * s), (z, h, s, m)
    features = projections.shape[-1]
    identity = features_are_cheaper(layer.rank, features, layer.embed_dim)
    w_out, kept = maps.w_out, projections.contiguous()
    if identity:
        w_out = fold_weights(w_out, projections[None])[0]
        kept = torch.eye(features, dtype=dtype, device=w_out.device).expand(*kept.shape[:2], -1, -1)
    for name in ("w_e", "w_r", "sqrt_lambda", "concat", "out_proj"):
        delattr(layer, name)
    # nn.TransformerEncoder asks these two whether they need a gradient
    vars(layer)["out_proj"] = SimpleNamespace(weight=torch.empty(0), bias=torch.empty(0))
    buffers: dict[str, Tensor] = {"folded_projections": kept.contiguous()}
    buffers |= {"folded_w_out": w_out.contiguous(), "folded_b_out": maps.b_out}
    for name, tensor in buffers.items():
        layer.register_buffer(name, tensor)
    layer.in_proj_weight.requires_grad_(False)
    if layer.in_proj_bias is not None:
        layer.in_proj_bias.requires_grad_(False)
    layer.folded = "features" if identity else "scores"
