"""Causal primal attention for decoders with rotary positions, grouped heads or normalised heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...theory.features import make_feature_map
from ...theory.ledger import Entry, Ledger
from ...theory.objective import trace_term
from ...theory.precision import autocast_dtype, widen, without_autocast
from ..cost import Terms
from . import PrimalState, plain
from .cost import primal_cost
from .options import check_options
from .running import running_mean

Rotation = tuple[Tensor, Tensor]


class RotaryPrimalAttention(nn.Module):
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
        self.feature_map = make_feature_map(feature_map, head_dim, device=device, dtype=dtype)
        if weights == "free" and self.feature_map.positive:
            raise ValueError(
                f'feature_map is {feature_map!r} with weights="free" in a decoder with rotary '
                'positions; expected "cosine", or weights="tied"'
            )
        self.rotate: Callable[..., tuple[Tensor, Tensor]] | None = None  # the original's own
        self.q_norm: nn.Module | None = None
        self.k_norm: nn.Module | None = None
        inner, features = num_heads * head_dim, self.feature_map.output_dim

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype)

        self.in_proj_weight = new(2 * inner, embed_dim)  # W_q, then W_k
        self.in_proj_bias = new(2 * inner) if bias else None
        if weights == "tied":
            self.dual_weight = new(2 * num_heads * rank, embed_dim)  # V_e, then V_r
        else:
            self.w_e = new(num_heads, features, rank)
            self.w_r = new(num_heads, features, rank)
        self.sqrt_lambda = new(num_heads, rank)
        self.concat = linear(2 * rank, head_dim)  # W_c
        self.out_proj = linear(inner, embed_dim)
        self.ledger = Ledger()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As in PrimalAttention: Xavier, orthogonal W_e and W_r, Lambda^{1/2} in (0, 1)."""
        tied = [self.dual_weight] if self.weights == "tied" else []
        for matrix in (self.in_proj_weight, *tied):
            for half in matrix.chunk(2):
                nn.init.xavier_uniform_(half)
        if self.weights == "free":
            with torch.no_grad():
                for head in (*self.w_e, *self.w_r):
                    wide = torch.empty_like(head, dtype=widen(head[:0]).dtype)
                    head.copy_(nn.init.orthogonal_(wide))
        nn.init.uniform_(self.sqrt_lambda)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)

    def init_state(self, batch_size: int) -> PrimalState:
        """The state before the first token; its size does not depend on the context."""
        like = widen(self.in_proj_weight.detach()[:0])
        seen = torch.zeros(batch_size, dtype=torch.long, device=like.device)
        if self.weights == "free":
            return PrimalState(like.new_zeros(batch_size, len(self.in_proj_weight)), seen, None)
        columns = self.rank + self.feature_map.positive
        shape = (batch_size, 2, self.num_heads, self.feature_map.output_dim, columns)
        return PrimalState(like.new_zeros(shape), seen, None)

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
        state = self.init_state(len(x)) if state is None else state
        state.check_batch(len(x))
        x = x.to(autocast_dtype(x))
        with without_autocast(x.device):
            hidden = plain.hide(x, ignore)
            tied: Tensor | None = None
            if self.weights == "tied":
                scores, tied, state = self._tied(hidden, ignore, rotation, state)
            else:
                scores, state = self._free(hidden, ignore, state)
            dropout = self.dropout if self.training else 0.0
            out = plain.output(scores, ignore, *self._output_map(x.dtype), dropout)
            if self.training and not torch.compiler.is_exporting():
                out = self.ledger.record(out, self._entry(scores, tied, ignore))
        return out, state

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs, counted as if it were not causal."""
        return primal_cost(self, length, batch)

    # -- the two kinds -----------------------------------------------------------------------------

    def _tied(
        self, x: Tensor, ignore: Tensor | None, rotation: Rotation | None, state: PrimalState
    ) -> tuple[Tensor, Tensor, PrimalState]:
        query, key = self._heads(x).unbind(1)  # (B, h, N, p)
        if self.rotate is not None:
            if rotation is None:
                raise ValueError(
                    "rotation is None; expected the cosines and sines of the positions"
                )
            query, key = self.rotate(query, key, *rotation)
        phi = self._features(torch.stack([query, key], dim=1), ignore)
        dual = plain.duals(x, self.dual_weight.to(x.dtype), self.num_heads)
        counts = state.seen.unsqueeze(-1) + _steps(x, ignore).cumsum(-1)
        scores, sums = plain.causal_tied_scores(
            phi, dual, counts, self.feature_map.positive, state.sums
        )
        scale = 1.0 / counts[:, -1].clamp(min=1).to(sums.dtype)
        tied = sums[..., : self.rank].flip(1) * scale[:, None, None, None, None]  # W_e, W_r
        return scores, tied, PrimalState(sums, counts[:, -1], None)

    def _free(
        self, x: Tensor, ignore: Tensor | None, state: PrimalState
    ) -> tuple[Tensor, PrimalState]:
        rows = self._heads(x).permute(0, 3, 1, 2, 4).flatten(2)  # (B, N, z * h * p)
        valid = None if ignore is None else ~ignore
        means, total, seen = running_mean(rows, valid, state.sums, state.seen)
        heads = means.unflatten(-1, (2, self.num_heads, self.head_dim)).permute(0, 2, 3, 1, 4)
        weights = torch.stack([self.w_e, self.w_r]).to(x.dtype)[None]  # (1, z, h, m, s)
        scores = plain.given_scores(self._features(heads, ignore), weights, ignore, None)
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
        return plain.hide_features(phi, ignore)

    def _output_map(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """W_c and the output projection in one: (d, 2h * s) and (d,)."""
        out = self.out_proj.weight.to(dtype).unflatten(1, (self.num_heads, self.head_dim))
        w_out = (out @ self.concat.weight.to(dtype)).unflatten(2, (2, self.rank))
        w_out = w_out.transpose(1, 2).flatten(1)
        b_out = w_out.new_zeros(self.embed_dim)
        if self.concat.bias is not None:
            b_out = out.sum(1) @ self.concat.bias.to(dtype) + self.out_proj.bias.to(dtype)
        return w_out, b_out

    def _entry(self, scores: Tensor, tied: Tensor | None, ignore: Tensor | None) -> Entry:
        """What J needs of this forward (equation 11)."""
        energy = plain.energy(scores)  # (B, z, h, s)
        energies = (energy * self.sqrt_lambda.to(energy.dtype).square()).sum(-1).transpose(0, 1)
        pair = (self.w_e, self.w_r) if tied is None else tied.unbind(1)
        trace = trace_term(*pair).to(energy.dtype).expand_as(energies[0])
        steps = _steps(scores[:, 0, 0], ignore).sum(-1)
        return Entry(torch.cat([energies, trace.unsqueeze(0)]), steps, steps)

    def extra_repr(self) -> str:
        return (
            f"{self.embed_dim}, {self.num_heads}, head_dim={self.head_dim}, rank={self.rank}, "
            f"weights={self.weights!r}, dropout={self.dropout}"
        )


def _steps(x: Tensor, ignore: Tensor | None) -> Tensor:
    """(B, N): 1 at valid positions."""
    if ignore is None:
        return torch.ones(x.shape[:2], dtype=torch.long, device=x.device)
    return (~ignore).long()


def keep_heads(primal: RotaryPrimalAttention, original: Any, rotate: Any) -> None:
    """Take over what the original does to its heads: its rotation, its norms."""
    primal.rotate = rotate
    primal.q_norm = copy.deepcopy(getattr(original, "q_norm", None))
    primal.k_norm = copy.deepcopy(getattr(original, "k_norm", None))
