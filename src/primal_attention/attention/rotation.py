"""Rotation of features by positions or real times: relative time inside the kernel, exactly."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..theory.time import waves


class Rotation(NamedTuple):
    """What turns the rows at positions (B, N): cosines and sines (B, N, c) of c phases w_i t, or
    (B, h, N, c) where every head has phases of its own.

    With R(t) the rotation of c pairs of coordinates, `<R(t) a, R(t') b>` depends on t - t' alone:
    the kernel of features times Bochner's kernel of time, at no further width. Coordinates beyond
    the first 2c are left as they are.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, times: Tensor, frequencies: Tensor) -> Rotation:
        """By times (B, N), best float64 ones, and frequencies (c,), or (h, c) by head."""
        found = waves(times, frequencies.flatten())
        if frequencies.dim() == 1:
            return cls(*found)
        return cls(*(wave.unflatten(-1, frequencies.shape).transpose(1, 2) for wave in found))

    def turn(self, rows: Tensor) -> Tensor:
        """R(t) of rows (B, ..., N, m): coordinates i and c + i are a pair."""
        pairs = self.cos.shape[-1]
        extra = (1,) * (rows.dim() - self.cos.dim())
        shape = (len(self.cos), *extra, *self.cos.shape[1:])
        cos, sin = (wave.reshape(shape).to(rows.dtype) for wave in self)
        first, second = rows[..., :pairs], rows[..., pairs : 2 * pairs]
        turned = [first * cos - second * sin, first * sin + second * cos]
        if 2 * pairs < rows.shape[-1]:
            turned.append(rows[..., 2 * pairs :])
        return torch.cat(turned, -1)

    def check(self, batch: int, heads: int, length: int, width: int) -> None:
        """Raise unless it is one of so many positions, for heads that are wide enough."""
        known = ((batch, length), (batch, heads, length))
        for name, wave in zip(self._fields, self, strict=True):
            if tuple(wave.shape[:-1]) not in known or 2 * wave.shape[-1] > width:
                raise ValueError(
                    f"rotation.{name} has shape {tuple(wave.shape)}; expected ({batch}, {length}, "
                    f"c) or ({batch}, {heads}, {length}, c) with c of at most {width // 2}"
                )


def by_head(frequencies: Tensor, heads: int) -> Tensor:
    """Frequencies (h c,) in a row, dealt out to the heads in turn, (h, c): every head has some from
    the whole range, and no two heads have the same."""
    return frequencies.view(-1, heads).T.contiguous()
