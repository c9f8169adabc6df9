"""A padded batch as the list of its tokens, so that position-wise work is done on data only."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention.rotation import Rotation
from ..kernels.ordering import valid_first
from ..theory.transforms import is_transformed


class Packing(NamedTuple):
    """Where the tokens of a batch of sequences stand.

    Every sequence begins at position 0 and its padding follows. `padding` (B, N) marks it, None if
    there is none. `places` (T,) are those of the tokens in (B * N,), and *rows* are then
    (T, ...); with places None rows are (B, N, ...), whatever stands in the padding of them.
    `rotation` is that of the positions (B, N), for attentions that know times.
    """

    batch: int
    length: int
    padding: Tensor | None = None
    places: Tensor | None = None
    rotation: Rotation | None = None

    def unpack(self, rows: Tensor) -> Tensor:
        """Rows as sequences (B, N, ...)."""
        if self.places is None:
            return rows
        flat: Tensor = _Spread.apply(rows, self.places, self.batch * self.length)
        return flat.view(self.batch, self.length, *rows.shape[1:])

    def pack(self, sequences: Tensor) -> Tensor:
        """The rows of sequences (B, N, ...)."""
        if self.places is None:
            return sequences
        rows: Tensor = _Take.apply(sequences.flatten(0, 1), self.places)
        return rows

    def padded(self, rows: Tensor, length: int) -> tuple[Tensor, Packing]:
        """Rows (..., c) as sequences (B, length, c) with zero in the padding, which then is at the
        end of them and still known, but no longer left out."""
        sequences = F.pad(self.unpack_zeroed(rows), (0, 0, 0, length - self.length))
        padding = self.padding
        if padding is None and length > self.length:
            padding = torch.zeros(self.batch, self.length, dtype=torch.bool, device=rows.device)
        if padding is not None:
            padding = F.pad(padding, (0, length - self.length), value=True)
        return sequences, Packing(self.batch, length, padding)

    def unpack_zeroed(self, rows: Tensor) -> Tensor:
        """Rows (..., d) as sequences (B, N, d) with zero in the padding."""
        if self.padding is None or self.places is not None:
            return self.unpack(rows)
        return rows.masked_fill(self.padding.unsqueeze(-1), 0.0)


def pack(inputs: Tensor, padding: Tensor | None) -> tuple[Tensor, Packing]:
    """The rows of inputs (B, N, ...) whose padding (B, N), True = ignore, may stand anywhere.

    Sizes that depend on data have no place in a compiled graph: there the sequences are moved to
    the front and stay padded.
    """
    batch, length = inputs.shape[:2]
    if padding is None:
        return inputs, Packing(batch, length)
    valid = ~padding
    lengths = valid.sum(-1, keepdim=True)
    if not _may_pack(padding):
        return _move_to_front(inputs, padding, lengths)
    source = valid.flatten().nonzero().squeeze(-1)
    if len(source) == valid.numel():
        return inputs, Packing(batch, length)
    longest = max(int(lengths.max()), 1)  # no attention accepts a length of 0
    within = torch.arange(longest, device=padding.device) < lengths
    places = within.flatten().nonzero().squeeze(-1)
    rows = inputs.flatten(0, 1).index_select(0, source)
    return rows, Packing(batch, longest, ~within, places)


def _move_to_front(inputs: Tensor, padding: Tensor, lengths: Tensor) -> tuple[Tensor, Packing]:
    def like_inputs(t: Tensor) -> Tensor:
        return t.view(*t.shape, *(1,) * (inputs.dim() - 2)).expand_as(inputs)

    batch, length = padding.shape
    behind = torch.arange(length, device=padding.device) >= lengths
    rows = inputs.gather(1, like_inputs(valid_first(padding)[0]))
    return rows.masked_fill(like_inputs(behind), 0), Packing(batch, length, behind)


def _may_pack(padding: Tensor) -> bool:
    return not (torch.compiler.is_compiling() or is_transformed() or padding.is_meta)


# One is the other's derivative. torch's own derivative of index_select would add row by row.


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, index: Tensor) -> Tensor:
        ctx.size = len(flat)
        ctx.save_for_backward(index)
        return flat.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return _Spread.apply(g, index, ctx.size), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return rows.new_zeros(size, *rows.shape[1:]).index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return _Take.apply(g, index), None, None
