"""What a finished run can be asked: cases of which it says a class, in batches.

A case is a series, a text or an image with its class; of events, every event, whose type is said
from those before it; of texts, every token. Events of one sequence and tokens of one piece are not
independent: they are a group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..analysis.stated import Floats, Integers
from ..tasks.classification.evaluate import TOKENS, similar_lengths
from ..tasks.events.evaluate import TOKENS as EVENTS
from ..tasks.events.sets import EventBatch, EventData
from ..tasks.examples import Batch, Examples
from ..tasks.language.text import Piece, TextData

MOST = 20_000  # events or tokens: whole sequences or pieces, spread evenly
NUMBERS = 2**22  # logits of a batch


class Asked(ABC):
    """Cases in batches. `split` is the set that they are of, `noun` what a case is, and `turned`
    what is done to those that are strange."""

    split: str
    noun: str
    turned: str

    @abstractmethod
    def batches(self) -> Iterator[Any]:
        """The same ones every time."""

    @abstractmethod
    def logits(self, model: Any, batch: Any, *, strange: bool = False) -> Tensor:
        """(n, classes) of the cases of a batch, or of what they are turned into."""

    @abstractmethod
    def labels(self, batch: Any) -> Tensor:
        """(n,)"""

    def groups(self, batch: Any) -> Integers | None:
        """(n,): which cases go together; None where each stands alone."""
        return None

    def chances(self, model: Any, batch: Any) -> Floats | None:
        """(n,): of what comes with the class, the chance of less than what came; None without."""
        return None


@dataclass(frozen=True, eq=False)
class AskedCases(Asked):
    """Series, texts and images."""

    examples: Examples
    split: str
    noun: str = "cases"
    turned: str = "valid positions in reversed order (images upside down)"

    def batches(self) -> Iterator[Batch]:
        for indices in self.places():
            yield self.examples.__getitems__(indices)

    def places(self) -> list[list[int]]:
        """Which cases a batch has."""
        return similar_lengths(self.examples.lengths.numpy(), TOKENS)

    def logits(self, model: Any, batch: Batch, *, strange: bool = False) -> Tensor:
        inputs = turn_around(batch) if strange else batch.inputs
        found: Tensor = model(inputs, batch.padding)
        return found

    def labels(self, batch: Batch) -> Tensor:
        return batch.targets


def batches_together(asked: Sequence[Asked]) -> Iterator[tuple[Any, ...]]:
    """Batches of several runs, None where one has no more. Those of series, texts and images hold
    the same cases even where runs cut them to lengths of their own."""
    same = [one for one in asked if isinstance(one, AskedCases)]
    if len(same) == len(asked) and len({len(one.examples) for one in same}) == 1:
        for indices in same[0].places():
            yield tuple(one.examples.__getitems__(indices) for one in same)
    else:
        yield from zip_longest(*(one.batches() for one in asked))


@dataclass(frozen=True, eq=False)
class AskedEvents(Asked):
    """The next type of every event, and of the gap until it the chance of a shorter one."""

    data: EventData
    split: str
    most: int = MOST
    noun: str = "events"
    turned: str = "the types of a history in reversed order"
    _chosen: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_chosen", spread(self.data.lengths.numpy(), self.most))

    def batches(self) -> Iterator[tuple[list[int], EventBatch]]:
        for indices in similar_lengths(self.data.lengths.numpy()[self._chosen], EVENTS):
            places = [self._chosen[i] for i in indices]
            yield places, self.data.__getitems__(places)

    def logits(self, model: Any, batch: Any, *, strange: bool = False) -> Tensor:
        _, given = batch
        types = turn_around(Batch(given.types, given.padding, given.types)) if strange else None
        found: Tensor = self._made(model, given, types).types[~given.padding]
        return found

    def labels(self, batch: Any) -> Tensor:
        _, given = batch
        found: Tensor = given.next_types[~given.padding]
        return found

    def groups(self, batch: Any) -> Integers:
        places, given = batch
        return np.repeat(np.array(places), (~given.padding).sum(1).numpy())

    def chances(self, model: Any, batch: Any) -> Floats | None:
        _, given = batch
        gap = self._made(model, given, None).gap
        if gap is None:
            return None
        found = gap.cdf(model.gap_of(given.gaps))[~given.padding]
        return np.asarray(found.double().clamp(0.0, 1.0).numpy())

    @staticmethod
    def _made(model: Any, given: EventBatch, types: Tensor | None) -> Any:
        types = given.types if types is None else types
        return model(types, given.times, given.next_times, given.padding)


@dataclass(frozen=True, eq=False)
class AskedTokens(Asked):
    """The next token of every token."""

    data: TextData
    split: str
    vocabulary: int
    most: int = MOST
    noun: str = "tokens"
    turned: str = "the tokens of a piece in reversed order"
    _chosen: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        length = self.data.__getitems__([0]).tokens.shape[1]
        lengths = np.full(len(self.data), length)
        object.__setattr__(self, "_chosen", spread(lengths, self.most))

    def batches(self) -> Iterator[tuple[list[int], Piece]]:
        length = self.data.__getitems__([0]).tokens.shape[1]
        size = max(1, NUMBERS // (length * self.vocabulary))
        for first in range(0, len(self._chosen), size):
            places = self._chosen[first : first + size]
            yield places, self.data.__getitems__(places)

    def logits(self, model: Any, batch: Any, *, strange: bool = False) -> Tensor:
        _, given = batch
        valid = given.targets >= 0
        tokens = given.tokens
        if strange:
            tokens = turn_around(Batch(tokens, ~valid, tokens))
        found: Tensor = model(tokens)[valid]
        return found

    def labels(self, batch: Any) -> Tensor:
        _, given = batch
        found: Tensor = given.targets[given.targets >= 0]
        return found

    def groups(self, batch: Any) -> Integers:
        places, given = batch
        return np.repeat(np.array(places), (given.targets >= 0).sum(1).numpy())


def spread(lengths: Any, most: int) -> list[int]:
    """Sequences that have about `most` places together, evenly spread over all; all if there are
    no more."""
    total = int(np.sum(lengths))
    if most < 1:
        raise ValueError(f"the number of cases is {most}; expected at least 1")
    if total <= most:
        return list(range(len(lengths)))
    count = max(1, round(len(lengths) * most / total))
    return sorted({int(i) for i in np.linspace(0, len(lengths) - 1, count).round()})


def turn_around(batch: Batch) -> Tensor:
    """Strange cases: the valid positions of a sequence in reversed order, images upside down."""
    inputs, padding = batch.inputs, batch.padding
    if padding.shape != inputs.shape[: padding.dim()]:  # images (B, C, H, W)
        return inputs.flip(-2)
    axis = padding.dim() - 1
    length = padding.shape[axis]
    valid = (~padding).sum(-1, keepdim=True)  # the padding stands behind
    places = torch.arange(length).expand(padding.shape)
    order = torch.where(places < valid, valid - 1 - places, places)
    index = order[..., None].expand_as(inputs) if inputs.dim() > padding.dim() else order
    return inputs.gather(axis, index)
