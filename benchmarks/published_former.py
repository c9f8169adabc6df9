"""PrimalFormer the way research code usually states it, to measure ours against.

Plain PyTorch from the description of the method: everything is computed on the whole padded batch
(B, max_length), attention does not look at the padding, heads are copied into their own layout,
features and scores are formed, the loss is taken from the scores, and one linear layer reads all
positions at once.
"""

from __future__ import annotations

import torch
from rivals import PublishedPrimal
from torch import Tensor, nn
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.models import SequenceClassifier


class PublishedAttention(PublishedPrimal):
    """Data-dependent weights with `n = min(s * rank_multi, N)` anchors."""

    def __init__(self, d: int, heads: int, rank: int, anchors: int) -> None:
        super().__init__(d, heads, rank, data=True)
        self.anchors = anchors
        self.w_e = nn.Parameter(nn.init.orthogonal_(torch.empty(heads, anchors, rank)))
        self.w_r = nn.Parameter(nn.init.orthogonal_(torch.empty(heads, anchors, rank)))


class PublishedLayer(nn.Module):
    """Post-norm encoder layer; returns the loss of its attention too."""

    def __init__(
        self, d: int, heads: int, rank: int, anchors: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.attention = PublishedAttention(d, heads, rank, anchors)
        self.linear1, self.linear2 = nn.Linear(d, hidden), nn.Linear(hidden, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        attended, loss = self.attention(x)
        x = self.norm1(x + self.dropout1(attended))
        forward = self.linear2(self.dropout(F.gelu(self.linear1(x))))
        return self.norm2(x + self.dropout2(forward)), loss


class PublishedFormer(nn.Module):
    """Series (B, max_length, channels) with padding (B, max_length) to logits and the KSVD loss."""

    def __init__(
        self,
        channels: int,
        classes: int,
        max_length: int,
        *,
        rank: int,
        anchors: int,
        depth: int = 2,
        d: int = 512,
        heads: int = 8,
        hidden: int = 2048,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.d = d
        self.project = nn.Linear(channels, d)
        self.positions = nn.Parameter(torch.empty(max_length, d).uniform_(-0.02, 0.02))
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            PublishedLayer(d, heads, rank, anchors, hidden, dropout) for _ in range(depth)
        )
        self.output = nn.Linear(max_length * d, classes)

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        x = self.project(x) * self.d**0.5
        x = self.dropout1(x + self.positions)
        losses = []
        for layer in self.layers:
            x, loss = layer(x)
            losses.append(loss)
        x = self.dropout2(F.gelu(x)) * (~padding).unsqueeze(-1)
        return self.output(x.reshape(len(x), -1)), torch.stack(losses).mean()


@torch.no_grad()
def copy_parameters(published: PublishedFormer, ours: SequenceClassifier) -> None:
    """Give our classifier (flattened head, data-dependent primal layers) the published one's
    parameters."""
    pairs: list[tuple[nn.Module | nn.Parameter, nn.Module | nn.Parameter]] = [
        (ours.embedding, published.project),
        (ours.positions.table, published.positions),
        (ours.head.output, published.output),
    ]
    for mine, theirs in zip(ours.encoder.layers, published.layers, strict=True):
        own, other = mine.attention, theirs.attention
        assert isinstance(own, pa.PrimalAttention)
        own.in_proj_weight.copy_(torch.cat([other.q.weight, other.k.weight]))
        own.in_proj_bias.copy_(torch.cat([other.q.bias, other.k.bias]))
        pairs += [
            (own.w_e, other.w_e), (own.w_r, other.w_r), (own.sqrt_lambda, other.sqrt_lambda),
            (own.concat, other.concat), (own.out_proj, other.out),
            (mine.feedforward.expand, theirs.linear1), (mine.feedforward.reduce, theirs.linear2),
            (mine.norm_attention, theirs.norm1), (mine.norm_feedforward, theirs.norm2),
        ]  # fmt: skip
    for to, source in pairs:
        if isinstance(to, nn.Module) and isinstance(source, nn.Module):
            to.load_state_dict(source.state_dict())
        else:
            to.copy_(source)
