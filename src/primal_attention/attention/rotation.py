"""Rotation of features by positions or real times: relative time inside the kernel, exactly."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..theory.time import waves


class Rotation(NamedTuple):
    """What turns the rows at positions (B, N): cosines and sines (B, N, c) of c phases w_i t.

    With R(t) the rotation of c pairs of coordinates, `<R(t) a, R(t') b>` depends on t - t' alone:
    the kernel of features times Bochner's kernel of time, at no further width. Coordinates beyond
    the first 2c are left as they are.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, times: Tensor, frequencies: Tensor) -> Rotation:
        """By times (B, N), best float64 ones, and frequencies (c,)."""
        return cls(*waves(times, frequencies))

    def turn(self, rows: Tensor) -> Tensor:
        """R(t) of rows (B, ..., N, m): coordinates i and c + i are a pair."""
        pairs = self.cos.shape[-1]
        shape = (len(self.cos), *(1,) * (rows.dim() - 3), *self.cos.shape[1:])
        cos, sin = (wave.view(shape).to(rows.dtype) for wave in self)
        first, second = rows[..., :pairs], rows[..., pairs : 2 * pairs]
        turned = [first * cos - second * sin, first * sin + second * cos]
        if 2 * pairs < rows.shape[-1]:
            turned.append(rows[..., 2 * pairs :])
        return torch.cat(turned, -1)

    def check(self, batch: int, length: int, width: int) -> None:
        """Raise unless it is one of so many positions, for features that are wide enough."""
        for name, wave in zip(self._fields, self, strict=True):
            if wave.dim() != 3 or wave.shape[:2] != (batch, length) or 2 * wave.shape[2] > width:
                raise ValueError(
                    f"rotation.{name} has shape {tuple(wave.shape)}; expected ({batch}, {length}, "
                    f"at most {width // 2})"
                )
