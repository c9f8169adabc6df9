"""Tasks made from random numbers, where positions must find each other.

What a network without attention can reach in them is known, so that they tell attentions apart
where benchmarks do not: a mean over all positions, or a look at a few of them, is not enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..names import unknown


class Questions(NamedTuple):
    """A batch: tokens (B, N, k), k fields of every position; places (B, q), where an answer is
    expected; answers (B, q)."""

    tokens: Tensor
    places: Tensor
    answers: Tensor


@dataclass(frozen=True)
class GeneratedTask(ABC):
    """A task without data: `draw` makes as many sequences as are wanted, of any length."""

    @property
    @abstractmethod
    def fields(self) -> tuple[int, ...]:
        """How many values every field of a position has."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many answers there are."""

    @property
    @abstractmethod
    def shortest(self) -> int:
        """The least length."""

    @abstractmethod
    def _draw(self, batch: int, length: int, generator: torch.Generator) -> Questions:
        """A batch of sequences."""

    def draw(self, batch: int, length: int, generator: torch.Generator) -> Questions:
        """A batch of sequences, from a generator on the CPU."""
        if batch < 1:
            raise ValueError(f"batch is {batch}; expected at least 1")
        if length < self.shortest:
            raise ValueError(f"length is {length}; expected at least {self.shortest}")
        return self._draw(batch, length, generator)


@dataclass(frozen=True)
class Lookup(GeneratedTask):
    """`pairs` positions hold a key and its value, all others a key and a value that mean nothing;
    `queries` ask for the value of a key. A field tells the three kinds apart.

    One pair in N positions answers a query. Without attention: 1 / values.
    """

    pairs: int = 8
    keys: int = 32
    values: int = 16
    queries: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= self.keys:
            raise ValueError(
                f"pairs is {self.pairs}; expected 1 to {self.keys}, the number of keys"
            )
        if self.queries < 1:
            raise ValueError(f"queries is {self.queries}; expected at least 1")

    @property
    def fields(self) -> tuple[int, ...]:
        return 3, self.keys, self.values + 1  # a query has no value

    @property
    def classes(self) -> int:
        return self.values

    @property
    def shortest(self) -> int:
        return self.pairs + self.queries

    def _draw(self, batch: int, length: int, generator: torch.Generator) -> Questions:
        def number(below: int, *shape: int) -> Tensor:
            return torch.randint(0, below, shape, generator=generator)

        def order(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator).argsort(1)

        kind = torch.zeros(batch, length, dtype=torch.long)
        key, value = number(self.keys, batch, length), number(self.values, batch, length)
        places = order(batch, length)[:, : self.shortest]
        pairs, queries = places.split([self.pairs, self.queries], 1)
        keys, values = order(batch, self.keys)[:, : self.pairs], number(self.values, *pairs.shape)
        asked = number(self.pairs, batch, self.queries)
        for at, what, own_keys, own_values in (
            (pairs, 1, keys, values),
            (queries, 2, keys.gather(1, asked), torch.full_like(asked, self.values)),
        ):
            kind.scatter_(1, at, what)
            key.scatter_(1, at, own_keys)
            value.scatter_(1, at, own_values)
        return Questions(torch.stack([kind, key, value], -1), queries, values.gather(1, asked))


@dataclass(frozen=True)
class Counting(GeneratedTask):
    """How often does the token of a position occur in the sequence? The answers are 1 to `most`.

    Tokens come in groups whose sizes are uniform in 1 to `most`; what the groups leave is filled up
    with one further token, of which nothing is asked. Without attention: 2 / (most + 1), the share
    of the largest groups.
    """

    tokens: int = 64
    most: int = 8

    @property
    def fields(self) -> tuple[int, ...]:
        return (self.tokens + 1,)  # the last one fills up

    @property
    def classes(self) -> int:
        return self.most

    @property
    def shortest(self) -> int:
        return self.most

    def _draw(self, batch: int, length: int, generator: torch.Generator) -> Questions:
        sizes = torch.randint(1, self.most + 1, (batch, self.tokens), generator=generator)
        names = torch.rand(batch, self.tokens, generator=generator).argsort(1)
        ends = sizes.cumsum(1)  # groups that do not fit are left out, the rest is filled up
        ends = torch.where(ends <= length, ends, length + 1)
        group = torch.searchsorted(ends, torch.arange(length).repeat(batch, 1), right=True)
        inside = group < self.tokens
        inside &= ends.gather(1, group.clamp(max=self.tokens - 1)) <= length
        at = group.clamp(max=self.tokens - 1)
        token = torch.where(inside, names.gather(1, at), self.tokens)
        answer = torch.where(inside, sizes.gather(1, at) - 1, self.most - 1)
        shuffle = torch.rand(batch, length, generator=generator).argsort(1)
        asked = inside.gather(1, shuffle).int().argsort(dim=1, descending=True, stable=True)
        places = asked[:, : int(inside.sum(1).amin())]
        answers = answer.gather(1, shuffle).gather(1, places)
        return Questions(token.gather(1, shuffle).unsqueeze(-1), places, answers)


GENERATED: dict[str, type[GeneratedTask]] = {"lookup": Lookup, "counting": Counting}


def make_generated(name: str, **options: int) -> GeneratedTask:
    """A generated task by name."""
    if name not in GENERATED:
        raise ValueError(unknown("generated task", name, GENERATED))
    return GENERATED[name](**options)
