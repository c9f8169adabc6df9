"""Depth-wise convolutions over positions or over a grid, whose taps may move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DepthWise(nn.Module):
    """Every channel is convolved with its own `kernel` taps along each of `axes` axes,

        D(u)_i = b + sum_t w_t u(i + delta (t - (k - 1) / 2) + o_it),     u(.) = 0 outside

    with delta = `dilation`. A causal one (a single axis) has the taps i - delta (k - 1 - t). Taps
    stay in their places, o = 0, unless a `reach` is given: then they are moved by

        o_it = reach delta tanh(A_t u_i + a_t)

    with an A_t for every head, of the channels of the head, which its channels share; A and a are
    zero at the start. Between positions u(.) is interpolated linearly. Where causal, a tap that
    would pass i stays at i.

    One product with a slice for each tap: on a CPU 2 to 3 times as fast as torch's convolution of
    a sequence, forward and backward, and moved taps give the same to the last bit while o = 0.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        axes: int,
        *,
        kernel: int,
        dilation: int,
        causal: bool,
        reach: float | None,
        bias: bool,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.axes, self.dilation, self.reach = heads, axes, dilation, reach
        moved = 0 if reach is None else math.ceil(reach * dilation)
        span = dilation * (kernel - 1)
        self.before = (span if causal else span // 2) + moved  # positions that are read before i
        self.after = 0 if causal else self.before
        steps = range(-span if causal else -(span // 2), (0 if causal else span // 2) + 1, dilation)
        self.taps = tuple(product(steps, repeat=axes))

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.weight = new(len(self.taps), width)
        self.bias = new(width) if bias else None
        moves = len(self.taps) * axes
        self.offset_weight = None if reach is None else new(heads, width // heads, moves)
        self.offset_bias = None if reach is None else new(heads, moves)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As nn.Conv1d; taps in their places."""
        bound = len(self.taps) ** -0.5
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                nn.init.uniform_(parameter, -bound, bound)
        for parameter in (self.offset_weight, self.offset_bias):
            if parameter is not None:
                nn.init.zeros_(parameter)

    def forward(self, u: Tensor, past: Tensor | None = None) -> Tensor:
        """u (B, *sizes, d) to the same shape; `past` (B, before, d) are the positions before the
        first, zero if not given."""
        sizes = u.shape[1:-1]
        if past is None:
            margins = (self.before, self.after) * self.axes
            x = F.pad(u, (0, 0, *margins))
        else:
            x = torch.cat([past.to(u.dtype), u], 1)
        offsets = self._offsets(u)
        out = self.weight.new_zeros(()) if self.bias is None else self.bias
        for number, (tap, weight) in enumerate(zip(self.taps, self.weight, strict=True)):
            if offsets is None:
                rows = self._shifted(x, tap, sizes)
            else:
                rows = self._moved(x, tap, sizes, offsets[..., number, :])
            out = torch.addcmul(out, rows, weight)
        return out

    def remember(self, u: Tensor, past: Tensor, count: Tensor | None) -> Tensor:
        """The last positions (B, before, d) of the past and u (B, N, d), of which only the first
        count (B,) are valid."""
        rows = torch.cat([past.to(u.dtype), u], 1)
        if count is None:
            return rows[:, u.shape[1] :]
        index = count[:, None] + torch.arange(self.before, device=u.device)
        return rows.gather(1, index.unsqueeze(-1).expand(-1, -1, u.shape[-1]))

    def _shifted(self, x: Tensor, tap: Sequence[int], sizes: Sequence[int]) -> Tensor:
        for axis, (step, size) in enumerate(zip(tap, sizes, strict=True)):
            x = x.narrow(axis + 1, self.before + step, size)
        return x

    def _offsets(self, u: Tensor) -> Tensor | None:
        """o (B, M, h, taps, axes), M = all positions of u."""
        if self.reach is None or self.offset_weight is None or self.offset_bias is None:
            return None
        rows = u.flatten(1, -2).unflatten(-1, (self.heads, -1))  # (B, M, h, p)
        moves = torch.einsum("bmhp,hpo->bmho", rows, self.offset_weight) + self.offset_bias
        bounded = self.reach * self.dilation * moves.tanh()
        return bounded.view(*moves.shape[:3], len(self.taps), self.axes)

    def _moved(self, x: Tensor, tap: Sequence[int], sizes: Sequence[int], offset: Tensor) -> Tensor:
        """What a tap that is moved by offset (B, M, h, axes) reads of x."""
        each = [torch.arange(size, device=x.device) for size in sizes]
        places = [p.flatten()[:, None] for p in torch.meshgrid(*each, indexing="ij")]  # (M, 1)
        lows, lasts, fractions = [], [], []
        for axis, (step, place) in enumerate(zip(tap, places, strict=True)):
            own = offset[..., axis]  # (B, M, h)
            # from the left where causal: a tap at i has nothing to learn from the right of it
            whole = own.detach().floor() if self.after else own.detach().ceil() - 1
            lows.append(place + (self.before + step) + whole.long())
            lasts.append(place + (self.before + self.after))
            fractions.append(own - whole)
        heads = x.unflatten(-1, (self.heads, -1))  # (B, *sizes, h, p)
        found = interpolate(heads, lows, lasts, fractions)  # (B, M, h, p)
        return found.view(x.shape[0], *sizes, x.shape[-1])


def interpolate(
    x: Tensor, lows: Sequence[Tensor], lasts: Sequence[Tensor], fractions: Sequence[Tensor]
) -> Tensor:
    """Rows between those of x (B, *sizes, h, p): along every axis `fraction` of the way from `low`
    to low + 1, both (B, M, h), nothing beyond `last`; returns (B, M, h, p)."""
    sizes = x.shape[1:-2]
    rows, total = x.flatten(1, -3), x.new_zeros(())
    for corner in product((0, 1), repeat=len(sizes)):
        index, share = torch.zeros_like(lows[0]), torch.ones_like(fractions[0])
        for side, low, last, part, size in zip(corner, lows, lasts, fractions, sizes, strict=True):
            # a NaN among the fractions has no place, but must not leave the tensor
            index = index * size + (low + side).clamp(min=0).minimum(last)
            share = share * (part if side else 1.0 - part)
        taken = rows.gather(1, index.unsqueeze(-1).expand(-1, -1, -1, x.shape[-1]))
        total = total + taken * share.unsqueeze(-1)
    return total
