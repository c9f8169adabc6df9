"""Cutting a batch of sequences into pieces that stay in the cache, and buffers to go with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

PIECE = 2**20  # numbers (4 MiB in float32) that the features and scores of a piece may take


class Piece(NamedTuple):
    """Whole samples `first:last`, or the positions `start:stop` of one sample: contiguous rows."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        return self.last - self.first

    @property
    def positions(self) -> int:
        return self.samples * (self.stop - self.start)

    def of(self, x: Tensor) -> Tensor:
        """The piece of a (B, N, ...) tensor, a view."""
        return x[self.first : self.last, self.start : self.stop]


def pieces(x: Tensor, channels: int) -> Iterator[Piece]:
    """Cover x (B, N, d) where every position needs `channels` numbers.

    One piece off the CPU (few large launches) and in half precision (sums over pieces would be
    rounded too often).
    """
    batch, length = x.shape[:2]
    most = max(PIECE // channels, 1)
    if batch == 0:
        return
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        yield Piece(0, batch, 0, length)
    elif length <= most:
        step = most // length
        for first in range(0, batch, step):
            yield Piece(first, min(first + step, batch), 0, length)
    else:
        step = -(-length // -(-length // most))  # equal pieces, none longer than `most`
        for sample in range(batch):
            for start in range(0, length, step):
                yield Piece(sample, sample + 1, start, min(start + step, length))


class Store:
    """A flat buffer with `channels` numbers for every position of sequences of some length, or,
    when length is None, for the positions of one piece at a time.

    A piece is a contiguous block (groups, channels, positions) in it.
    """

    def __init__(self, data: Tensor, channels: int, length: int | None) -> None:
        self.data, self.channels, self.length = data, channels, length

    def at(self, piece: Piece, groups: int) -> Tensor:
        begin = 0 if self.length is None else piece.first * self.length + piece.start
        block = self.data[begin * self.channels : (begin + piece.positions) * self.channels]
        return block.view(groups, self.channels, -1)
