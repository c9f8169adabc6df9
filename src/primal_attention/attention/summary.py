"""What an attention keeps of a context, so that queries can come later, or again and again.

    s = attn.summarise(context)        # once
    attn.attend(query, s)              # equals attn(query, context)[0]

A mechanism whose context enters by sums keeps the sums: a "constant" number of numbers, whatever
the length of the context, and summaries of parts of a context add up to that of the whole. Others
keep the context itself, position by position: "linear".
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

__all__ = ["KeptRows", "KeptSums", "Summary"]

Growth = Literal["constant", "linear"]


@dataclass(frozen=True, eq=False)
class Summary:
    """Of a batch of contexts, by one layer; only that layer, with the same parameters, can read it.

    count: (B,), valid positions of each context; batched: whether the context had a batch.
    """

    growth: ClassVar[Growth]
    count: Tensor
    batched: bool

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it holds."""

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return sum(tensor.numel() for tensor in self.tensors)

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def _same(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(
                f"a {type(self).__name__} was added to or taken from a {type(other).__name__}; "
                "expected summaries of one layer"
            )
        mine, its = ([tuple(t.shape) for t in one.tensors[:-1]] for one in (self, other))
        if self.growth == "constant" and (mine != its or len(self.count) != len(other.count)):
            raise ValueError(f"summaries of shapes {mine} and {its}; expected those of one layer")


@dataclass(frozen=True, eq=False)
class KeptSums(Summary):
    """Sums over the context (B, ...), which add and subtract.

    log_scale (B, h): the sums are exp(-log_scale) times what they stand for, where exponentials
    would leave the range; None where they stand for themselves. adds: whether sums of two contexts
    are those of both together; not so where a context gives a fixed number of rows.
    """

    growth: ClassVar[Growth] = "constant"
    sums: tuple[Tensor, ...]
    log_scale: Tensor | None = None
    adds: bool = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        scale = () if self.log_scale is None else (self.log_scale,)
        return (*self.sums, *scale, self.count)

    def __add__(self, other: Self) -> Self:
        """The summary of both contexts together."""
        return self._joined(other, 1)

    def __sub__(self, other: Self) -> Self:
        """Without a context that was added before."""
        return self._joined(other, -1)

    def faded(self, factor: float) -> Self:
        """As if every position of the context weighed `factor` times as much: what is added later
        counts for more. A layer that divides by its row sums sees no other difference."""
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"factor is {factor}; expected a number in (0, 1]")
        self._expect_sums()
        wide = self.sums[0].dtype if self.sums else torch.get_default_dtype()
        sums = tuple(part * factor for part in self.sums)
        return replace(self, sums=sums, count=self.count.to(wide) * factor)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Of another type or on another device, as `Tensor.to`."""
        scale = None if self.log_scale is None else self.log_scale.to(*args, **kwargs)
        sums = tuple(part.to(*args, **kwargs) for part in self.sums)
        where = self.count.new_empty(0).to(*args, **kwargs).device
        count = self.count.to(where)  # of its own type: positions are counted
        return replace(self, sums=sums, log_scale=scale, count=count)

    def _joined(self, other: Self, sign: int) -> Self:
        self._same(other)
        self._expect_sums()
        count = self.count + sign * other.count
        if self.log_scale is None or other.log_scale is None:
            pairs = zip(self.sums, other.sums, strict=True)
            return replace(self, sums=tuple(a + sign * b for a, b in pairs), count=count)
        scale = torch.maximum(self.log_scale, other.log_scale)
        mine, its = _factor(self.log_scale - scale), _factor(other.log_scale - scale)
        sums = tuple(
            a * _like(mine, a) + sign * b * _like(its, b)
            for a, b in zip(self.sums, other.sums, strict=True)
        )
        return replace(self, sums=sums, log_scale=scale, count=count)

    def _expect_sums(self) -> None:
        if not self.adds:
            raise ValueError(
                "this summary has rows that were picked from the whole context; expected one that "
                'is a sum, as with weights="tied"'
            )


@dataclass(frozen=True, eq=False)
class KeptRows(Summary):
    """The context itself: rows or heads along its positions, and which of them to ignore (B, M)."""

    growth: ClassVar[Growth] = "linear"
    rows: tuple[Tensor, ...]  # (B, M, d), or keys and values (B, h, M, p)
    ignore: Tensor | None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        ignore = () if self.ignore is None else (self.ignore,)
        return (*self.rows, *ignore, self.count)

    def __add__(self, other: Self) -> Self:
        """The summary of one context after the other."""
        self._same(other)
        rows = tuple(torch.cat([a, b], -2) for a, b in zip(self.rows, other.rows, strict=True))
        ignore = None
        if not (self.ignore is None and other.ignore is None):
            ignore = torch.cat([self.hidden, other.hidden], 1)
        return replace(self, rows=rows, ignore=ignore, count=self.count + other.count)

    @property
    def hidden(self) -> Tensor:
        """Which positions to ignore (B, M), also where none is."""
        if self.ignore is not None:
            return self.ignore
        first = self.rows[0]
        return first.new_zeros(len(first), first.shape[-2], dtype=torch.bool)


Kind = TypeVar("Kind", bound=Summary)


def expect_summary(summary: Summary, kind: type[Kind], batch: int, batched: bool) -> Kind:
    """The summary, if a layer that makes this kind can be asked such queries about it."""
    if not isinstance(summary, kind):
        raise TypeError(
            f"the summary is a {type(summary).__name__}; expected a {kind.__name__}, which "
            "summarise of this layer makes"
        )
    if batched != summary.batched or len(summary.count) != batch:
        came = f"batch size {batch}" if batched else "no batch"
        expected = f"batch size {len(summary.count)}" if summary.batched else "no batch"
        raise ValueError(f"query has {came}; expected {expected}, as the summary")
    return summary


def _factor(log: Tensor) -> Tensor:
    """exp of a difference; of two empty contexts, whose scale is -inf, one."""
    return log.nan_to_num(nan=0.0, neginf=-torch.inf).exp()


def _like(factor: Tensor, sums: Tensor) -> Tensor:
    """(B, h) to the dimensions of sums (B, h, ...)."""
    return factor.reshape(*factor.shape, *[1] * (sums.dim() - factor.dim()))
