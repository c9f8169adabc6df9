"""How the published code starts its parameters, where ours start otherwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.base import Attention
from .embedding import TokenEmbedding

TOKEN_DEVIATION = 0.02


@torch.no_grad()
def start_as(model: nn.Module, *, projections: str, directions: str, tokens: str) -> None:
    """Start parts of a model anew:

    - projections "linear": W_q, W_k, W_v and the output projection of every attention as nn.Linear
      does, weights and biases uniform in +-1 / sqrt(width);
    - directions "unit": W_e and W_r of primal layers with one orthonormal row for each head, so
      that the Frobenius norm of a head is 1;
    - tokens "small": token rows of deviation 0.02, not scaled by sqrt(width).
    """
    for part in model.modules():
        if isinstance(part, Attention):
            if projections == "linear":
                _start_linear(part)
            if directions == "unit":
                _start_unit(part)
        elif isinstance(part, TokenEmbedding) and tokens == "small":
            part.scale = 1.0
            nn.init.normal_(part.weight, std=TOKEN_DEVIATION)


def _start_linear(attention: Attention) -> None:
    bound = attention.embed_dim**-0.5
    for name in ("in_proj_weight", "in_proj_bias"):
        if isinstance(found := getattr(attention, name, None), Tensor):
            nn.init.uniform_(found, -bound, bound)
    if isinstance(out := getattr(attention, "out_proj", None), nn.Linear):
        out.reset_parameters()


def _start_unit(attention: Attention) -> None:
    for name in ("w_e", "w_r"):
        if isinstance(found := getattr(attention, name, None), Tensor):  # (h, n, s)
            rows = nn.init.orthogonal_(found.flatten(1).clone())
            found.copy_((rows / rows.norm(dim=1, keepdim=True)).view_as(found))
