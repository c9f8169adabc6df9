"""Rows of a table as a network takes them, and the episodes in which it learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

HIDDEN = 0.3  # of a small table is asked at most, the rest is its context
MOST = 2000  # held-out rows that judge, in the light of twice as many


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the network takes them, and their labels."""

    numbers: Tensor  # (n, a)
    codes: Tensor  # (n, b)
    labels: Tensor  # (n,), classes or numbers of deviation 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: Tensor) -> Rows:
        return Rows(self.numbers[chosen], self.codes[chosen], self.labels[chosen])

    def to(self, dtype: torch.dtype) -> Rows:
        labels = self.labels.to(dtype) if self.labels.is_floating_point() else self.labels
        return Rows(self.numbers.to(dtype), self.codes, labels)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.numbers, self.codes, self.labels

    def joined(self, other: Rows) -> Rows:
        return Rows(*(torch.cat(pair) for pair in zip(self.parts, other.parts, strict=True)))

    def first(self, most: int) -> Rows:
        return Rows(*(part[:most] for part in self.parts))


class Episode(NamedTuple):
    """Rows that are asked, and rows with labels that are their context; `labels` are the answers.
    All but the last are the arguments of a `TableNet`."""

    numbers: Tensor
    codes: Tensor
    context_numbers: Tensor
    context_codes: Tensor
    context_labels: Tensor
    labels: Tensor

    @classmethod
    def of(cls, asked: Rows, context: Rows) -> Episode:
        return cls(asked.numbers, asked.codes, *context.parts, asked.labels)


class Episodes(Dataset[Episode]):
    """Some rows of a table are asked, others are their context, by chance. Small tables are used
    whole. The context is sometimes short, so that more rows help later."""

    def __init__(self, table: Rows, queries: int, context: int) -> None:
        self.table = table
        self.queries = asked_at_once(len(table), queries)
        self.context = min(context, len(table) - self.queries)

    def __len__(self) -> int:
        return len(self.table)

    def draw(self, generator: torch.Generator) -> Episode:
        """An episode of any rows."""
        order = torch.randperm(len(self.table), generator=generator)
        return self._episode(order[: self.queries], order[self.queries :], generator)

    def __getitems__(self, indices: Sequence[int]) -> Episode:
        """The episode that asks these rows; its context is drawn from torch's own generator."""
        asked = torch.as_tensor(list(indices))
        order = torch.randperm(len(self.table))
        return self._episode(asked, order[~torch.isin(order, asked)], None)

    def _episode(self, asked: Tensor, others: Tensor, generator: torch.Generator | None) -> Episode:
        share = 0.25 + 0.75 * float(torch.rand((), generator=generator))
        size = max(1, round(share * self.context))
        return Episode.of(self.table[asked], self.table[others[:size]])


def asked_at_once(rows: int, most: int) -> int:
    """How many of the rows of a table are asked in a step."""
    return min(most, max(1, round(HIDDEN * rows)))


def judgement(known: Rows, held_out: Rows) -> Episode:
    """Held-out rows in the light of the others, or of some of both; they are in any order."""
    return Episode.of(held_out.first(MOST), known.first(2 * MOST))
