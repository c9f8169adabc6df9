"""Rows of a table that attend to labelled rows: a prediction is made in the light of a context.

Row i has numbers and categories. Its embedding is

    x_i = sum_j W_j [z_ij, cos(2 pi f_j z_ij), sin(2 pi f_j z_ij)] + sum_k E_k[c_ik]        (n, d)

with frequencies f_j of every column that are learned (Bochner features), and a vector of its own
for a missing value; a feed-forward block follows. The context speaks in two ways. A readout solves
for the labels Y of the context by least squares in features phi of these rows,

    f(x) = phi(x)^T (Phi^T Phi + lambda I)^-1 Phi^T Y

whose two sums over the context, Phi^T Phi and Phi^T Y, are all that it needs. And blocks of
attention add to it: a context row has its label, a query row a vector that says "hidden"; queries
attend to the context, never to each other, so that a prediction does not depend on who else is
asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import make_attention
from ..attention.base import Attention, check_positive
from ..attention.summary import KeptSums, Summary
from ..names import check_choice
from .dropout import Dropout
from .feedforward import FeedForward

Context = Literal["set", "additive"]
RIDGE_ROWS = 16.0


class ColumnEmbedding(nn.Module):
    """Numbers (n, a), NaN where missing, and codes of categories (n, b), 0 where missing or not
    known, to rows (n, width)."""

    def __init__(
        self, numbers: int, categories: Sequence[int], width: int, *, frequencies: int, scale: float
    ) -> None:
        super().__init__()
        if numbers + len(categories) == 0:
            raise ValueError("the table has no columns; expected at least one")
        self.frequencies = nn.Parameter(scale * torch.randn(numbers, frequencies))
        features = numbers * (1 + 2 * frequencies)
        self.weight = nn.Parameter(torch.randn(width, features) / max(features, 1) ** 0.5)
        self.missing = nn.Parameter(torch.zeros(numbers, width))
        self.categories = nn.ModuleList(nn.Embedding(count + 1, width) for count in categories)
        for table in self.categories:
            nn.init.normal_(table.weight, std=(numbers + len(categories)) ** -0.5)  # type: ignore[arg-type]
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        rows = self.bias.expand(len(numbers), -1)
        if self.missing.shape[0]:
            absent = numbers.isnan()
            z = numbers.masked_fill(absent, 0.0)
            angles = 2 * math.pi * z.unsqueeze(-1) * self.frequencies  # (n, a, f)
            features = torch.cat([z.unsqueeze(-1), angles.cos(), angles.sin()], -1)
            features = features.masked_fill(absent.unsqueeze(-1), 0.0)
            rows = rows + features.flatten(1) @ self.weight.mT + absent.to(z) @ self.missing
        for k, table in enumerate(self.categories):
            rows = rows + table(codes[:, k])
        return rows


class RowBlock(nn.Module):
    """Attention to the context and feed-forward, both after a LayerNorm of queries and context
    alike, both added; the block before the first attention has none."""

    attention: Attention

    def __init__(
        self, attention: Attention | None, width: int, feedforward: int, dropout: float
    ) -> None:
        super().__init__()
        if attention is not None:
            self.attention = attention
        self.norm_attention, self.norm_feedforward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feedforward = FeedForward(width, feedforward, activation=nn.GELU(), dropout=dropout)
        self.dropout = Dropout(dropout)

    def after(self, rows: Tensor, attended: Tensor | None) -> Tensor:
        """Rows (n, d) with what they attended to, if anything, after the feed-forward."""
        if attended is not None:
            rows = self.dropout.add(rows, attended)
        return self.dropout.add(rows, self.feedforward(self.norm_feedforward(rows)))


class Readout(nn.Module):
    """Least squares of the labels of a context in learned features, by sums over its rows."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.features = nn.Linear(width, features)
        self.log_ridge = nn.Parameter(torch.tensor(-3.0))  # of lambda / rows
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def summarise(self, rows: Tensor, targets: Tensor) -> KeptSums:
        """Phi^T Phi (1, m, m) and Phi^T Y (1, m, c) of rows (n, d) and targets (n, c)."""
        phi = self._phi(rows)
        count = torch.full((1,), len(rows), device=rows.device)
        return KeptSums(count, True, ((phi.mT @ phi)[None], (phi.mT @ targets)[None]))

    def attend(self, rows: Tensor, kept: KeptSums) -> Tensor:
        """f at rows (n, d): (n, c)."""
        gram, moments = kept.sums
        # as many rows as the ridge stands for do not grow with the context
        ridge = self.log_ridge.exp() * RIDGE_ROWS
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        weights = torch.linalg.solve(gram[0] + ridge * eye, moments[0])
        found: Tensor = self.log_scale.exp() * (self._phi(rows) @ weights)
        return found

    def _phi(self, rows: Tensor) -> Tensor:
        return F.pad(F.gelu(self.features(self.norm(rows))), (0, 1), value=1.0)


class TableNet(nn.Module):
    """Logits, or one number, for rows of a table in the light of labelled rows.

    context "set": context rows attend to each other too. "additive": they do not, so that what is
    kept of a context is a sum over its rows, to which rows can be added and from which they can be
    taken, exactly.

    Args:
        numbers, categories: how many columns of numbers, and how many values each category has.
        classes: how many; None for a regression, whose labels are numbers of deviation 1.
        attention, options: of every block, by name.
    """

    def __init__(
        self,
        *,
        numbers: int,
        categories: Sequence[int],
        classes: int | None,
        context: Context = "set",
        attention: str = "primal",
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        feedforward: int = 128,
        dropout: float = 0.1,
        frequencies: int = 8,
        scale: float = 0.3,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, layers=layers, feedforward=feedforward)
        check_positive(frequencies=frequencies)
        check_choice("context", context, get_args(Context))
        self.classes, self.context = classes, context
        self.columns = ColumnEmbedding(
            numbers, categories, width, frequencies=frequencies, scale=scale
        )
        self.label = nn.Linear(1, width) if classes is None else nn.Embedding(classes, width)
        self.hidden = nn.Parameter(torch.zeros(width))
        self.first = RowBlock(None, width, feedforward, dropout)
        blocks = []
        for _ in range(layers):
            made = make_attention(attention, width, heads, **(options or {}))
            if not isinstance(made, Attention) or made.causal or not made.has_cross:
                raise ValueError(
                    f"attention is {attention!r} with {dict(options or {})}; expected one that "
                    "attends to another sequence, see the column cross in `primal list`"
                )
            blocks.append(RowBlock(made, width, feedforward, dropout))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 1 if classes is None else classes)
        nn.init.zeros_(self.output.weight)  # the readout speaks first
        self.readout = Readout(width, width)

    def forward(
        self,
        numbers: Tensor,
        codes: Tensor,
        context_numbers: Tensor,
        context_codes: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """The joint pass: outputs (n, classes or 1) of query rows in the light of context rows with
        labels (m,)."""
        m = len(labels)
        both = torch.cat([context_numbers, numbers]), torch.cat([context_codes, codes])
        base = self._base(*both)
        solved = self.readout.summarise(base[:m], self._targets(labels, base))
        rows = base + torch.cat([self._label(labels, base), self.hidden.expand(len(numbers), -1)])
        for block in self._blocks():
            normed = block.norm_attention(rows)[None]
            kept = block.attention.summarise(normed[:, :m])
            if self.context == "set":
                attended = block.attention.attend(normed, kept)[0]
            else:
                attended = F.pad(block.attention.attend(normed[:, m:], kept)[0], (0, 0, m, 0))
            rows = block.after(rows, attended)
        out: Tensor = self.output(self.norm(rows[m:])) + self.readout.attend(base[m:], solved)
        return out

    def summarise(
        self, numbers: Tensor, codes: Tensor, labels: Tensor, before: Sequence[Summary] = ()
    ) -> list[Summary]:
        """What readout and blocks have to know of labelled rows; with `before`, a summary of
        earlier rows, that of both together. The earlier ones stay as they were: with context "set"
        the later rows see them, they do not see the later ones."""
        base = self._base(numbers, codes)
        rows = base + self._label(labels, base)
        found: list[Summary] = []

        def keep(kept: Any) -> Any:
            found.append(before[len(found)] + kept if before else kept)
            return found[-1]

        keep(self.readout.summarise(base, self._targets(labels, base)))
        for block in self._blocks():
            normed = block.norm_attention(rows)[None]
            kept = keep(block.attention.summarise(normed))
            own = block.attention.attend(normed, kept)[0] if self.context == "set" else None
            rows = block.after(rows, own)
        return found

    def answer(self, numbers: Tensor, codes: Tensor, summaries: Sequence[Summary]) -> Tensor:
        """`forward` by summaries of the context."""
        base = self._base(numbers, codes)
        rows, (solved, *others) = base + self.hidden, summaries
        for block, kept in zip(self._blocks(), others, strict=True):
            normed = block.norm_attention(rows)[None]
            rows = block.after(rows, block.attention.attend(normed, kept)[0])
        if not isinstance(solved, KeptSums):
            raise TypeError(f"the first summary is a {type(solved).__name__}; expected KeptSums")
        out: Tensor = self.output(self.norm(rows)) + self.readout.attend(base, solved)
        return out

    @property
    def attentions(self) -> list[Attention | None]:
        """Whose summaries are kept, in their order; None is the readout."""
        return [None, *(block.attention for block in self._blocks())]

    def _blocks(self) -> Iterable[RowBlock]:
        return cast("Iterable[RowBlock]", self.blocks)

    def _base(self, numbers: Tensor, codes: Tensor) -> Tensor:
        return self.first.after(self.columns(numbers, codes), None)

    def _targets(self, labels: Tensor, rows: Tensor) -> Tensor:
        """What the readout solves for (n, c): numbers, or 1 of the class and 0 of the others."""
        if self.classes is None:
            return labels.to(rows).unsqueeze(-1)
        return F.one_hot(labels, self.classes).to(rows)

    def _label(self, labels: Tensor, rows: Tensor) -> Tensor:
        """Embedded labels (m, d)."""
        numbers = self.classes is None
        embedded: Tensor = self.label(labels.to(rows).unsqueeze(-1) if numbers else labels)
        return embedded


class TableNets(nn.Module):
    """Several networks that are asked together: the mean of their numbers, or of their
    probabilities, as logarithms. What is kept of a context is what each of them keeps, one after
    the other."""

    def __init__(self, members: Iterable[TableNet]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.classes, self.context = self._members[0].classes, self._members[0].context

    def forward(
        self,
        numbers: Tensor,
        codes: Tensor,
        context_numbers: Tensor,
        context_codes: Tensor,
        labels: Tensor,
    ) -> Tensor:
        rows = numbers, codes, context_numbers, context_codes, labels
        return self._together([net(*rows) for net in self._members])

    def summarise(
        self, numbers: Tensor, codes: Tensor, labels: Tensor, before: Sequence[Summary] = ()
    ) -> list[Summary]:
        found: list[Summary] = []
        for k, net in enumerate(self._members):
            found += net.summarise(numbers, codes, labels, self._share(before, k))
        return found

    def answer(self, numbers: Tensor, codes: Tensor, summaries: Sequence[Summary]) -> Tensor:
        return self._together(
            [
                net.answer(numbers, codes, self._share(summaries, k))
                for k, net in enumerate(self._members)
            ]
        )

    @property
    def attentions(self) -> list[Attention | None]:
        """Whose summaries are kept, in their order; None is a readout."""
        return [one for net in self._members for one in net.attentions]

    @property
    def _members(self) -> list[TableNet]:
        return cast("list[TableNet]", list(self.members))

    def _share(self, summaries: Sequence[Summary], k: int) -> Sequence[Summary]:
        """Those of one network."""
        each = len(summaries) // len(self.members)
        return summaries[k * each : (k + 1) * each]

    def _together(self, outputs: Sequence[Tensor]) -> Tensor:
        found = torch.stack(list(outputs))
        if self.classes is None:
            return found.mean(0)
        return found.log_softmax(-1).logsumexp(0) - math.log(len(outputs))


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of classes, mean square of numbers."""
    if labels.is_floating_point():
        return F.mse_loss(outputs[:, 0], labels)
    return F.cross_entropy(outputs, labels)
