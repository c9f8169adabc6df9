"""Primal attention between queries, keys and values that another module has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...kernels import reference
from ...kernels.graphs import is_exporting
from ...theory.features import make_feature_map
from ...theory.ledger import Ledger
from ...theory.precision import widen
from ..base import check_positive
from ..cost import Terms
from .options import Weights
from .readout import Readout
from .state import PrimalState
from .steps import causal_tied, objective_terms, valid_positions


class HeadsPrimalAttention(Readout):
    """Tied Primal-Attention of h heads of width p, without projections of its own.

    A layer of another library makes its queries, keys and values as it always did, rotations and
    norms included, and takes its heads from here. With dual variables linear in the values,
    h_e = U_e^T v and h_r = U_r^T v, U (p, s) by head, and c = 1 / length,

        e_i = c sum_j <phi(q_i), phi(k_j)> h_r(j)     r_j = c sum_i <phi(q_i), phi(k_j)> h_e(i)

    and head i gives W_c [e_i; r_i]; with positive features divided by the row sums of the kernel.
    Between two sequences there is no r, and no term of J.
    """

    weights: Weights = "tied"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        rank: int,
        feature_map: str = "cosine",
        causal: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(num_heads=num_heads, head_dim=head_dim, rank=rank)
        self.num_heads, self.head_dim, self.rank = num_heads, head_dim, rank
        self.causal, self.dropout = causal, dropout
        self.feature_map = make_feature_map(
            feature_map, head_dim, num_heads, device=device, dtype=dtype
        )
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.dual = nn.Parameter(torch.empty(2, num_heads, head_dim, rank, **kind))  # U_e, U_r
        self.sqrt_lambda = nn.Parameter(torch.empty(num_heads, rank, **kind))
        self.concat = nn.Linear(2 * rank, head_dim, **kind)  # W_c
        self.ledger = Ledger()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier U, Lambda^{1/2} uniform in (0, 1)."""
        nn.init.xavier_uniform_(self.dual.flatten(0, 2))
        nn.init.uniform_(self.sqrt_lambda)
        self.concat.reset_parameters()

    def init_state(self, batch_size: int) -> PrimalState:
        """The state before the first token; its size does not depend on the context."""
        like = widen(self.dual.detach()[:0])
        width = self.rank + self.feature_map.positive
        sums = like.new_zeros(batch_size, 2, self.num_heads, self.feature_map.output_dim, width)
        return PrimalState(
            sums, torch.zeros(batch_size, dtype=torch.long, device=like.device), None
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        ignore: Tensor | None = None,
        state: PrimalState | None = None,
        *,
        cross: bool = False,
    ) -> tuple[Tensor, PrimalState | None]:
        """query (B, h, N, p), key and value (B, h, M, p); ignore (B, M), True = ignore.

        Returns the heads (B, h, N, p), and where causal the state after them.
        """
        value = value if ignore is None else value.masked_fill(ignore[:, None, :, None], 0.0)
        dual = value.unsqueeze(1) @ self.dual.to(value.dtype)  # (B, z, h, M, s)
        tied: Tensor | None = None
        if cross:
            scores = self._between(query, key, dual[:, 1], ignore)
        elif self.causal:
            state = self.init_state(query.shape[0]) if state is None else state
            state.check_batch(query.shape[0])
            phi = reference.hide_features(self._features(query, key), ignore)
            scores, tied, state = causal_tied(self, phi, dual, ignore, state)  # type: ignore[arg-type]
        else:
            scores, tied = self._within(self._features(query, key), dual, ignore)
        used = nn.functional.dropout(scores, self.dropout, self.training)
        pairs = used.to(value.dtype).movedim(1, -2).flatten(-2)  # (B, h, N, 2s)
        weight, bias = self.readout()
        weight = weight[:, : pairs.shape[-1]].to(value.dtype)
        heads = nn.functional.linear(pairs, weight, None if bias is None else bias.to(value.dtype))
        if tied is not None and self.training and not is_exporting():
            terms = objective_terms(self, reference.energy(scores), tied)  # type: ignore[arg-type]
            count = valid_positions(query.transpose(1, 2), ignore)
            heads = self.ledger.record(heads, terms, count, count)
        return heads, state

    def _within(self, phi: Tensor, dual: Tensor, ignore: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores (B, z, h, N, s) of one sequence, and its weights W_e, W_r, for the trace in J."""
        phi = reference.hide_features(phi, ignore)
        scale = 1.0 / _count(phi, ignore)
        weights = reference.tied_weights(phi, dual, scale)  # (B, z, h, m, s)
        sums = None
        if self.feature_map.positive:
            sums = widen(phi).sum(-2) * scale[:, None, None, None]
        return reference.scores(phi, weights, ignore, tied_sums=sums), weights

    def _between(self, query: Tensor, key: Tensor, dual: Tensor, ignore: Tensor | None) -> Tensor:
        """Scores e (B, 1, h, N, s) of queries that ask another sequence."""
        at_queries = self._features(query, query)[:, 0]
        at_keys = reference.hide_features(self._features(key, key), ignore)[:, 1]
        scale = (1.0 / _count(at_keys, ignore)).view(-1, 1, 1, 1)
        scores = at_queries @ (at_keys.mT @ (dual * scale).to(at_keys.dtype))
        if self.feature_map.positive:
            rows = at_queries @ (at_keys.sum(-2) * scale.squeeze(-1)).unsqueeze(-1)
            scores = scores * reference.inverse_positive(rows)
        return scores.unsqueeze(1)

    def _features(self, query: Tensor, key: Tensor) -> Tensor:
        heads = torch.stack([query, key], dim=1)
        return self.feature_map(widen(heads) if self.feature_map.positive else heads)  # type: ignore[no-any-return]

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs, without the projections around it."""
        h, p, s, m = self.num_heads, self.head_dim, self.rank, self.feature_map.output_dim
        rows = batch * length * h
        flops = rows * (4 * p * s + 8 * m * s + 4 * p * s + 4 * self.feature_map.products)
        return Terms(flops, rows * (3 * p + 2 * m + 4 * s), rows * (3 * p + 2 * m + 4 * s))

    def extra_repr(self) -> str:
        return (
            f"{self.num_heads}, {self.head_dim}, rank={self.rank}, causal={self.causal}, "
            f"dropout={self.dropout}"
        )


def _count(phi: Tensor, ignore: Tensor | None) -> Tensor:
    """The valid positions (B,) of phi (B, ..., N, m), at least 1."""
    if ignore is None:
        return phi.new_full((phi.shape[0],), phi.shape[-2])
    return (~ignore).sum(-1).clamp(min=1).to(phi.dtype)
