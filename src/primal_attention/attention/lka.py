"""A gated convolution, published as large kernel attention: what surrounds a position decides how
much of each of its channels passes. It sees 23 positions, has no softmax and no kernel matrix, and
is meant to stand before attentions that see all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.ordering import permute, valid_first
from .base import Streaming, check_batch, check_positive
from .cost import Terms
from .depthwise import DepthWise
from .inputs import Sequences
from .masks import check_attention_mask
from .projected import ProjectedAttention, hide
from .registry import register

__all__ = ["LargeKernelAttention", "LargeKernelState"]


class LargeKernelState(NamedTuple):
    """The last inputs of the two convolutions, (B, before, d) each: what the next token reads."""

    local: Tensor
    wide: Tensor


class _Done(NamedTuple):
    """The output rows (B, N, d) of a call; what its two convolutions were given (B, N, d), valid
    positions first, and how many are `valid` (B,), None where all."""

    out: Tensor
    u: Tensor
    v: Tensor
    valid: Tensor | None


@register(
    "lka",
    paper="Azad et al.: Beyond Self-Attention: Deformable Large Kernel Attention, WACV 2024",
    cost="O(N)",
)
class LargeKernelAttention(Streaming, ProjectedAttention):
    """A gated convolution. With depth-wise convolutions D of some taps and dilation,

        u = gelu(W_1 x + b_1)      o = W_2 (u * (P D_wide(D_local(u)) + b_P)) + b_2

    D_local has `kernel` neighbouring taps, D_wide `large` taps that are `dilation` apart: together
    they see kernel + (large - 1) dilation positions around i, or up to i with causal=True. Outside
    the sequence both read zero. Neighbours are counted among the valid positions, wherever ignored
    ones stand between them. On a `grid` positions are its cells, row by row, convolutions are those
    of images, and an ignored cell is an empty one.

    Taps that move are explained in `DepthWise`. The published code takes their offsets from a dense
    convolution, does not bound them and does not start at zero.

    in_proj_weight (d, d) is W_1, out_proj W_2. Heads only matter to moved taps, which the channels
    of a head share.

    Args:
        kernel: taps of the first convolution, an odd number.
        large: taps of the second convolution, an odd number.
        dilation: steps between the taps of the second convolution.
        deformable: taps are moved by what stands at the position that they serve.
        reach: how far taps may move, in steps between them.
        grid: rows and columns (H, W) of sequences of length H W that are images; not causal.
    """

    has_values = False
    has_cross = False
    parts = 1

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: int = 5,
        large: int = 7,
        dilation: int = 3,
        deformable: bool = False,
        reach: float = 1.0,
        grid: Sequence[int] | None = None,
        causal: bool = False,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        check_positive(kernel=kernel, large=large, dilation=dilation)
        for name, taps in (("kernel", kernel), ("large", large)):
            if taps % 2 == 0:
                raise ValueError(f"{name} is {taps}; expected an odd number of taps")
        if not 0.0 < reach < float("inf"):
            raise ValueError(f"reach is {reach}; expected a number above 0")
        self.kernel, self.large, self.dilation = int(kernel), int(large), int(dilation)
        self.deformable, self.reach, self.grid = deformable, reach, _checked(grid, causal)

        def depthwise(taps: int, step: int) -> DepthWise:
            return DepthWise(
                self.embed_dim, self.num_heads, 1 if grid is None else 2,
                kernel=taps, dilation=step, causal=causal, reach=reach if deformable else None,
                bias=bias, device=device, dtype=dtype,
            )  # fmt: skip

        self.local, self.wide = depthwise(self.kernel, 1), depthwise(self.large, self.dilation)
        self.gate = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """W_1, W_2 as in the attentions with projections, convolutions as torch has them."""
        super().reset_parameters()
        for part in (self.local, self.wide, self.gate):
            part.reset_parameters()

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """The output (B, N, d) of a sequence (B, N, d), and None in the place of a matrix.

        key_padding_mask (B, N): True or -inf marks positions to ignore; their rows are zero.
        attn_mask and is_causal may only say what the layer does anyway.
        """
        if need_weights:
            _no_matrix("need_weights=True")
        call, _ = self._arrange(query, key, value, key_padding_mask)
        shape = self._mask_shape(call)
        check_attention_mask(attn_mask, is_causal, causal=self.causal, shape=shape)
        return call.restore(self._convolve(call).out), None

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> Never:
        """There are none: ValueError."""
        _no_matrix("factors")

    def init_state(self, batch_size: int) -> LargeKernelState:
        """The state of a stream before its first token: zeros; causal layers only."""
        self._expect_causal("init_state")
        weight = self.in_proj_weight
        return LargeKernelState(
            weight.new_zeros(batch_size, self.local.before, self.embed_dim),
            weight.new_zeros(batch_size, self.wide.before, self.embed_dim),
        )

    def _continue(
        self, call: Sequences, values: Tensor, state: LargeKernelState
    ) -> tuple[Tensor, LargeKernelState]:
        check_batch(len(state.local), call.x.shape[0])
        done = self._convolve(call, state)
        local = self.local.remember(done.u, state.local, done.valid)
        wide = self.wide.remember(done.v, state.wide, done.valid)
        return done.out, LargeKernelState(local, wide)

    def coverage(self, length: int) -> int:
        """Positions that have another one in their reach; the nearest one is enough."""
        check_positive(length=length)
        near = 1 if self.kernel > 1 or self.deformable else self.dilation
        if self.kernel == self.large == 1 and not self.deformable:
            return 0
        if self.causal:
            return max(length - near, 0)
        alone = 1
        for size in self._sizes(length):
            alone *= max(2 * near - size, 0) if size > near else size
        return length - alone

    def cost(self, length: int, batch: int = 1) -> Terms:
        """Taps are element-wise products, which FLOPs do not count. Training keeps what every
        moved tap reads: the rows at the corners between which it stands, and their mean."""
        rows, d, axes = batch * length, self.embed_dim, self.local.axes
        flops, kept, working = rows * 6 * d**2, rows * 8 * d, rows * 5 * d
        if self.deformable:
            taps, corners = len(self.local.taps) + len(self.wide.taps), 2**axes
            flops += rows * 2 * d * taps * axes
            kept += rows * taps * ((corners + 1) * d + 4 * corners * self.num_heads)
            working += rows * (3 * d + 2 * self.num_heads * axes * len(self.wide.taps))
        return Terms(flops, kept, working)

    # -- parts -----------------------------------------------------------------------------------

    def _sizes(self, length: int) -> tuple[int, ...]:
        """The shape of the positions."""
        if self.grid is None:
            return (length,)
        rows, columns = self.grid
        if length != rows * columns:
            raise ValueError(f"the length is {length}; expected {rows} * {columns}, as the grid")
        return self.grid

    def _convolve(self, call: Sequences, state: LargeKernelState | None = None) -> _Done:
        rows, ignore = hide(call.x, call.ignore), call.ignore
        sizes, count, place = self._sizes(rows.shape[1]), None, None
        if ignore is not None and self.grid is None:  # valid positions become neighbours
            order, place = valid_first(ignore)
            rows, count = permute(rows, order), (~ignore).sum(1)
            ignore = ignore.gather(1, order)
        u = hide(F.gelu(self._linear(rows, 0, self.embed_dim)), ignore)
        past = (None, None) if state is None else state
        v = hide(self.local(u.unflatten(1, sizes), past[0]).flatten(1, -2), ignore)
        seen = self.wide(v.unflatten(1, sizes), past[1]).flatten(1, -2)
        out = self.out_proj(u * self.gate(seen))
        if place is not None:
            out = permute(out, place)
        return _Done(hide(out, call.ignore), u, v, count)


def _checked(grid: Sequence[int] | None, causal: bool) -> tuple[int, int] | None:
    if grid is None:
        return None
    if isinstance(grid, str) or not isinstance(grid, Sequence) or len(grid) != 2:
        raise ValueError(f"grid is {grid!r}; expected (rows, columns) or None")
    check_positive(rows=grid[0], columns=grid[1])
    if causal:
        raise ValueError(f"grid is {grid!r} with causal=True; expected a sequence, grid=None")
    return int(grid[0]), int(grid[1])


def _no_matrix(asked: str) -> Never:
    raise ValueError(
        f"{asked} asks for an attention matrix; lka is a gated convolution and has none"
    )
