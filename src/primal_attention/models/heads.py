"""From the rows of the last layer to the logits of a sequence."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import Dropout
from .options import Place
from .packing import Packing


def mean_of_valid(rows: Tensor, packing: Packing, length: int | None = None) -> Tensor:
    """The mean over the valid positions of each sequence, (B, d); that of an empty one is 0. With a
    length, their sum is divided by that."""
    sequences = packing.unpack_zeroed(rows)  # (B, N, d)
    if length is not None:
        return sequences.sum(1) / length
    if packing.padding is None:
        return sequences.mean(1)
    count = (~packing.padding).sum(-1, keepdim=True).clamp(min=1)
    return sequences.sum(1) / count


class MeanHead(nn.Module):
    """The mean over the valid positions (see `mean_of_valid`), then one linear layer."""

    def __init__(
        self, width: int, classes: int, *, length: int | None = None, **place: Unpack[Place]
    ) -> None:
        super().__init__()
        self.length = length
        self.output = nn.Linear(width, classes, **place)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        logits: Tensor = self.output(mean_of_valid(rows, packing, self.length))
        return logits


class MLPHead(nn.Module):
    """The mean over the valid positions, then two linear layers with ReLU between: the head of the
    Long-Range Arena. With `pairs`, rows 2i and 2i + 1 belong together, and what is classified is
    `[a, b, a * b, a - b]` of their means a and b."""

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        hidden: int,
        pairs: bool = False,
        length: int | None = None,
        **place: Unpack[Place],
    ) -> None:
        super().__init__()
        self.pairs, self.length = pairs, length
        features = 4 * width if pairs else width
        self.hidden = nn.Linear(features, hidden, **place)
        self.output = nn.Linear(hidden, classes, **place)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        features = mean_of_valid(rows, packing, self.length)
        if self.pairs:
            a, b = features.unflatten(0, (-1, 2)).unbind(1)
            features = torch.cat([a, b, a * b, a - b], -1)  # (B, 4 d)
        logits: Tensor = self.output(F.relu(self.hidden(features)))
        return logits


class AttentionHead(nn.Module):
    """A mean with learned weights over the valid positions, then one linear layer: the gated
    pooling of multiple-instance learning (Ilse, Tomczak, Welling 2018),

        a_i = softmax_i(w^T (tanh(V h_i) * sigmoid(U h_i)))        z = sum_i a_i h_i

    whose weights say which instances a decision rests on."""

    def __init__(
        self, width: int, classes: int, *, hidden: int | None = None, **place: Unpack[Place]
    ) -> None:
        super().__init__()
        hidden = max(1, width // 2) if hidden is None else hidden
        self.content = nn.Linear(width, hidden, **place)  # V
        self.gate = nn.Linear(width, hidden, **place)  # U
        self.score = nn.Linear(hidden, 1, bias=False, **place)  # w
        self.output = nn.Linear(width, classes, **place)

    def weights(self, rows: Tensor, packing: Packing) -> Tensor:
        """a (B, N), zero at padding and all over an empty sequence."""
        gated = torch.tanh(self.content(rows)) * torch.sigmoid(self.gate(rows))
        scores = packing.unpack_zeroed(self.score(gated)).squeeze(-1)  # (B, N)
        if packing.padding is None:
            return scores.softmax(-1)
        empty = packing.padding.all(-1, keepdim=True)
        scores = scores.masked_fill(packing.padding & ~empty, -torch.inf)
        return scores.softmax(-1).masked_fill(empty, 0.0)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        weights = self.weights(rows, packing).unsqueeze(1)  # (B, 1, N)
        logits: Tensor = self.output((weights @ packing.unpack_zeroed(rows)).squeeze(1))
        return logits


class FlattenHead(nn.Module):
    """The paper's: activation, dropout, then one linear layer of all max_length positions at once,
    where those beyond the end of a sequence are zero."""

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        max_length: int,
        activation: nn.Module,
        dropout: float,
        **place: Unpack[Place],
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(max_length * width, classes, **place)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        active = self.dropout(self.activation(rows))
        flat = packing.unpack_zeroed(active).flatten(1)  # (B, N * d)
        if torch.compiler.is_compiling():  # the layout of a slice would tie the graph to a length
            flat = F.pad(flat, (0, self.output.in_features - flat.shape[1]))
            return F.linear(flat, self.output.weight, self.output.bias)
        # the zeros from N to max_length need not exist
        return F.linear(flat, self.output.weight[:, : flat.shape[1]], self.output.bias)
