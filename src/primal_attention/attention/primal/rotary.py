"""Causal primal attention for decoders with rotary positions, grouped heads or normalised heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...kernels import reference
from ...kernels.dispatch import autocast_type
from ...kernels.graphs import is_exporting
from ...kernels.scan import running_mean
from ...theory.features import make_feature_map
from ...theory.precision import widen, without_autocast
from ..base import check_positive
from ..cost import Terms
from .cost import primal_cost
from .options import check_options
from .parameters import PrimalParameters
from .state import PrimalState
from .steps import causal_tied, objective_terms, output_map, valid_positions

Rotation = tuple[Tensor, Tensor]


class RotaryPrimalAttention(PrimalParameters):
    """Causal Primal-Attention whose queries and keys are made as a rotary decoder makes them.

    Per head q = norm(W_q x), k = norm(W_k x), as in the original, then

    - `"tied"`: R_i q_i and R_j k_j, rotated by their positions; the cosine map commutes with a
      rotation, so the kernel `<R_i phi(q_i), R_j phi(k_j)>` knows relative positions, exactly as
      softmax attention did: e_i = 1/i sum_{j <= i} <R_i phi(q_i), R_j phi(k_j)> V_r x_j.
    - `"free"`: running means of q and k over the positions so far, NOT rotated: a mean over
      positions has no relative position. Order enters through the running mean alone.

    Other than in `PrimalAttention`, h p may differ from the width d. Plain operations throughout.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        rank: int,
        weights: Literal["free", "tied"],
        feature_map: str = "cosine",
        bias: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_options(rank, weights, None, 1, "sample", True)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, head_dim
        self.rank, self.weights, self.dropout, self.causal = rank, weights, dropout, True
        self.feature_map = make_feature_map(
            feature_map, head_dim, num_heads, device=device, dtype=dtype
        )
        if weights == "free" and self.feature_map.positive:
            raise ValueError(
                f'feature_map is {feature_map!r} with weights="free" in a decoder with rotary '
                'positions; expected "cosine", or weights="tied"'
            )
        self.rotate: Callable[..., tuple[Tensor, Tensor]] | None = None  # the original's own
        self.q_norm: nn.Module | None = None
        self.k_norm: nn.Module | None = None
        self._make_parameters(self.feature_map.output_dim, bias, device, dtype)

    def init_state(self, batch_size: int) -> PrimalState:
        """The state before the first token; its size does not depend on the context."""
        return self._zero_state(batch_size, len(self.in_proj_weight))

    def forward(
        self,
        x: Tensor,
        ignore: Tensor | None = None,
        rotation: Rotation | None = None,
        state: PrimalState | None = None,
    ) -> tuple[Tensor, PrimalState]:
        """x (B, N, d); ignore (B, N), True = ignore; rotation: cosines and sines (B, N, p).

        Returns the output (B, N, d), zero at ignored positions, and the state after it.
        """
        state = self.init_state(x.shape[0]) if state is None else state
        state.check_batch(x.shape[0])
        x = x.to(autocast_type(x) or x.dtype)
        with without_autocast(x.device):
            hidden = reference.hide(x, ignore)
            tied: Tensor | None = None
            if self.weights == "tied":
                scores, tied, state = self._tied(hidden, ignore, rotation, state)
            else:
                scores, state = self._free(hidden, ignore, state)
            dropout = self.dropout if self.training else 0.0
            out = reference.output(scores, ignore, *output_map(self, x.dtype), dropout)
            if self.training and not is_exporting():
                terms = objective_terms(self, reference.energy(scores), tied)
                count = valid_positions(x, ignore)
                out = self.ledger.record(out, terms, count, count)
        return out, state

    def coverage(self, length: int) -> int:
        """How many of `length` positions can influence another one: all but the last."""
        check_positive(length=length)
        return length - 1

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs, counted as if it were not causal."""
        return primal_cost(self, length, batch)

    # -- the two kinds -----------------------------------------------------------------------------

    def _tied(
        self, x: Tensor, ignore: Tensor | None, rotation: Rotation | None, state: PrimalState
    ) -> tuple[Tensor, Tensor, PrimalState]:
        rows = reference.unit_rows(x) if self.feature_map.unit_rows else x
        query, key = self._heads(rows).unbind(1)  # (B, h, N, p)
        if self.rotate is not None:
            if rotation is None:
                raise ValueError(
                    "rotation is None; expected the cosines and sines of the positions"
                )
            query, key = self.rotate(query, key, *rotation)
        phi = self._features(torch.stack([query, key], dim=1), ignore)
        dual = reference.duals(x, self.dual_weight.to(x.dtype), self.num_heads)
        return causal_tied(self, phi, dual, ignore, state)

    def _free(
        self, x: Tensor, ignore: Tensor | None, state: PrimalState
    ) -> tuple[Tensor, PrimalState]:
        rows = self._heads(x).permute(0, 3, 1, 2, 4).flatten(2)  # (B, N, z * h * p)
        means, total, seen = running_mean(rows, ignore, state.sums, state.seen)
        heads = means.unflatten(-1, (2, self.num_heads, self.head_dim)).permute(0, 2, 3, 1, 4)
        weights = torch.stack([self.w_e, self.w_r]).to(x.dtype)[None]  # (1, z, h, m, s)
        scores = reference.scores(self._features(heads, ignore), weights, ignore)
        return scores, PrimalState(total, seen, None)

    def _heads(self, x: Tensor) -> Tensor:
        """Queries and keys before their positions, (B, z, h, N, p)."""
        bias = None if self.in_proj_bias is None else self.in_proj_bias.to(x.dtype)
        qk = nn.functional.linear(x, self.in_proj_weight.to(x.dtype), bias)
        query, key = qk.unflatten(-1, (2, self.num_heads, self.head_dim)).unbind(2)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        return torch.stack([query, key], dim=1).transpose(2, 3)

    def _features(self, heads: Tensor, ignore: Tensor | None) -> Tensor:
        phi = self.feature_map(widen(heads) if self.feature_map.positive else heads)
        return reference.hide_features(phi, ignore)

    def extra_repr(self) -> str:
        return (
            f"{self.embed_dim}, {self.num_heads}, head_dim={self.head_dim}, rank={self.rank}, "
            f"weights={self.weights!r}, dropout={self.dropout}"
        )


def keep_heads(primal: RotaryPrimalAttention, original: Any, rotate: Any) -> None:
    """Take over what the original does to its heads: its rotation, its norms."""
    primal.rotate = rotate
    primal.q_norm = copy.deepcopy(getattr(original, "q_norm", None))
    primal.k_norm = copy.deepcopy(getattr(original, "k_norm", None))
