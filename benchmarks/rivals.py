"""What Primal-Attention is timed against: whole attention blocks, straightforwardly written.

Every block maps x (B, N, d) to (B, N, d) with its own input and output projections.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Floor(nn.Module):
    """The products that no attention of this family avoids: q and k in one, and the output
    projection; the latter of x itself, so that nothing stands between them."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.qk, self.out = nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.out(x), self.qk(x)


class Products(nn.Module):
    """All matrix products of Primal-Attention with free weights, each on an input of its own in the
    layout it likes best, and nothing between them, by torch's library of products. No lower bound:
    compiled kernels pack less and are faster."""

    def __init__(self, d: int, heads: int, rank: int) -> None:
        super().__init__()
        self.sides, self.rank = 2 * heads, rank
        self.qk, self.out = nn.Linear(d, 2 * d), nn.Linear(2 * heads * rank, d)
        self.weights = nn.Parameter(torch.randn(2 * heads, rank, d // heads))

    def inputs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Stand-ins for q and k by side (2h, p, T), and for the scores (B, N, 2h * s)."""
        positions = x.shape[0] * x.shape[1]
        by_side = torch.randn(self.sides, self.weights.shape[2], positions)
        scores = torch.randn(*x.shape[:2], self.sides * self.rank)
        return by_side.requires_grad_(), scores.requires_grad_()

    def forward(self, x: Tensor, by_side: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.out(scores), self.qk(x), torch.bmm(self.weights, by_side)


class FusedSoftmax(nn.Module):
    """torch's scaled_dot_product_attention."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def merge(self, heads: Tensor) -> Tensor:
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.merge(F.scaled_dot_product_attention(q, k, v))


class MaterialisedSoftmax(FusedSoftmax):
    """softmax(Q K^T / sqrt(p)) V with the N x N matrix in memory, as in the paper's tables."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.merge((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v)


class LinearAttention(FusedSoftmax):
    """Katharopoulos et al. 2020 with elu + 1 features."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)  # (B, N, h, p)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        sums = torch.einsum("bnhp,bnhq->bhpq", k, v)
        norm = 1 / torch.einsum("bnhp,bhp->bnh", q, k.sum(1))
        return self.out(torch.einsum("bnhp,bhpq,bnh->bnhq", q, sums, norm).flatten(2))


class PublishedPrimal(nn.Module):
    """Primal-Attention the way research code usually states it: heads copied into their own layout,
    normalised features formed, scores concatenated, the loss taken from the scores."""

    def __init__(self, d: int, heads: int, rank: int, data: bool) -> None:
        super().__init__()
        self.heads, self.anchors = heads, rank * 10 if data else None
        rows = self.anchors or d // heads
        self.q, self.k, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.w_e = nn.Parameter(nn.init.orthogonal_(torch.empty(heads, rows, rank)))
        self.w_r = nn.Parameter(nn.init.orthogonal_(torch.empty(heads, rows, rank)))
        self.sqrt_lambda = nn.Parameter(torch.rand(heads, rank))
        self.concat = nn.Linear(2 * rank, d // heads)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def heads(t: Tensor) -> Tensor:
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()  # (B, h, N, p)

        q, k = F.normalize(heads(self.q(x)), dim=-1), F.normalize(heads(self.k(x)), dim=-1)
        w_e, w_r = self.w_e, self.w_r
        if self.anchors is not None:
            at = torch.linspace(0, x.shape[1] - 1, self.anchors).round().long()
            f = heads(x[:, at])
            w_e, w_r = (torch.einsum("bhnp,hns->bhps", f, w) for w in (w_e, w_r))
            e, r = torch.einsum("bhnp,bhps->bhns", q, w_e), torch.einsum("bhnp,bhps->bhns", k, w_r)
        else:
            e, r = torch.einsum("bhnp,hps->bhns", q, w_e), torch.einsum("bhnp,hps->bhns", k, w_r)
        out = self.out(self.concat(torch.cat([e, r], -1)).transpose(1, 2).flatten(2))
        scaled = [(s * self.sqrt_lambda[:, None]).square().sum(-1).mean(-1) for s in (e, r)]
        trace = torch.einsum("hns,hns->h", self.w_e, self.w_r)
        objective = (0.5 * scaled[0] + 0.5 * scaled[1] - trace).mean(-1)
        return out, objective.square().mean()
