"""A list of candidates that attend to each other, for a second look at a search.

After Ouyang et al., Contextual Similarity Aggregation (NeurIPS 2021): a candidate is described by
its similarities to the query and the first candidates, not by its vector, so that what is learned
on some groups serves others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.base import check_positive
from .encoder import make_encoder
from .packing import Packing

SPEED = 30.0  # of v, which starts at zero and has a long way to go


class RerankNet(nn.Module):
    """Scores of a list. With unit vectors f_0 of the query, f_1 ... f_K of the candidates, and
    anchors, the query and the first L - 1 candidates,

        a_i = (<f_i, f_l>)_{l < L}      x = encoder(W a)      s_i = g <f_0, f_i> + v cos(x_0, x_i)

    without positions: candidates permuted give their scores permuted. v starts at zero, so that an
    untrained network gives back the first round.

    Args:
        anchors: L.
    """

    def __init__(
        self,
        *,
        anchors: int = 64,
        attention: str = "primal",
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        feedforward: int = 128,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_positive(anchors=anchors, layers=layers)
        self.anchors = anchors
        self.affinities = nn.Linear(anchors, width)
        given = {attention: dict(options or {})}
        self.encoder = make_encoder(
            (attention,) * layers, given, width=width, heads=heads, feedforward=feedforward,
            activation=nn.GELU(), dropout=dropout, norm="pre", primal={"rank": width // heads // 2},
            settings={"max_length": 1 << 20},
        )  # fmt: skip
        self.log_first = nn.Parameter(torch.tensor(2.0))  # log g
        self.context = nn.Parameter(torch.tensor(0.0))  # v / SPEED

    def forward(self, query: Tensor, listed: Tensor, anchors: Tensor) -> Tensor:
        """Scores (B, K) of candidates listed (B, K, d) for queries (B, d), all of length 1, with
        anchors (B, at most L - 1, d) of each list."""
        first = torch.einsum("bd,bkd->bk", query, listed)
        rows = torch.cat([query[:, None], listed], 1)  # (B, K + 1, d)
        points = torch.cat([query[:, None], anchors], 1)[:, : self.anchors]
        affinities = rows @ points.mT  # (B, K + 1, at most L)
        affinities = F.pad(affinities, (0, self.anchors - affinities.shape[-1]))
        seen = self.affinities(affinities)
        out = self.encoder(seen, Packing(*seen.shape[:2]))  # a list is a sequence of its own
        near = F.cosine_similarity(out[:, :1], out[:, 1:], dim=-1)
        scores: Tensor = self.log_first.exp() * first + SPEED * self.context * near
        return scores


def list_loss(scores: Tensor, relevant: Tensor) -> Tensor:
    """-log(sum_rel e^s / sum e^s), all relevant of a list in one sum; (B, K) both. Lists without a
    relevant candidate do not count."""
    hidden = scores.masked_fill(~relevant, -torch.inf)
    some = relevant.any(1)
    found = scores.logsumexp(1)[some] - hidden[some].logsumexp(1)
    return found.mean()
