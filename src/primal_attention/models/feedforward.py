"""The feed-forward part of an encoder layer, and hand-written passes of it for the CPU.

Written plainly, the wide rows act(W_1 x + b_1) are several tensors, each four times the size of the
input and read from memory again. The passes here keep W_1 x + b_1 alone for the way back; all
else is as long as a tile of the positions, is used again, and stays in the cache. There is no
dropout mask either: what is dropped becomes -DROPPED before the activation, where GELU and ReLU are
exactly 0 and so are their derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.random_bits import draw_dropped, is_eager_cpu, keep_scale
from .dropout import Dropout
from .options import Place

TILE = 2**21  # numbers in the wide rows of a tile
DROPPED = 2.0**100


class FeedForward(nn.Module):
    """`W_2 dropout(act(W_1 x + b_1)) + b_2` at every position; act is GELU or ReLU."""

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        activation: nn.GELU | nn.ReLU,
        dropout: float,
        **place: Unpack[Place],
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden, **place)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.reduce = nn.Linear(hidden, width, **place)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) to (..., d)."""
        if not self._is_quick(x):
            plain: Tensor = self.reduce(self.dropout(self.activation(self.expand(x))))
            return plain
        rows = x.reshape(-1, x.shape[-1])  # (T, d)
        maps = (self.expand.weight, self.expand.bias, self.reduce.weight, self.reduce.bias)
        gelu = isinstance(self.activation, nn.GELU)
        p = self.dropout.p if self.dropout.training else 0.0
        if torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *maps)):
            out: Tensor = _FeedForward.apply(rows, *maps, p, gelu)
        else:
            out = _sweep(rows, *maps, p, gelu, None)
        return out.view(x.shape)

    def _is_quick(self, x: Tensor) -> bool:
        return (
            is_eager_cpu(x)
            and x.dtype == self.expand.weight.dtype
            and x.dtype in (torch.float32, torch.float64)
            and not torch.is_autocast_enabled("cpu")
            and type(self.expand) is type(self.reduce) is nn.Linear
            and getattr(self.activation, "approximate", "none") == "none"
            and isinstance(self.activation, nn.GELU | nn.ReLU)
            and not any(_has_hooks(part) for part in self.children())
        )


def _has_hooks(part: nn.Module) -> bool:
    """Whether a part has hooks, which the passes would not call."""
    return any((part._forward_hooks, part._forward_pre_hooks, part._backward_hooks))


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,  # (T, d)
        w_1: Tensor,
        b_1: Tensor,
        w_2: Tensor,
        b_2: Tensor,
        p: float,
        gelu: bool,
    ) -> Tensor:
        ctx.scale, ctx.gelu = keep_scale(p), gelu
        # a tensor a tile: the C library gets one of all tiles as new pages from the system
        wide = [x.new_empty(len(x[cut]), len(w_1)) for cut in _tiles(len(x), len(w_1))]
        out = _sweep(x, w_1, b_1, w_2, b_2, p, gelu, wide)
        ctx.save_for_backward(x, w_1, b_1, w_2, b_2, *wide)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: this derivative will be derived itself
            return _plain_backward(ctx, g)
        x, w_1, b_1, w_2, _, *wide = ctx.saved_tensors
        g = g.contiguous()
        d_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_w_1, d_b_1, d_w_2 = map(torch.zeros_like, (w_1, b_1, w_2))
        cuts = _tiles(len(x), len(w_1))
        buffers = x.new_empty(2, _longest(cuts), len(w_1))
        for cut, h in zip(cuts, wide, strict=True):
            active, d_h = buffers[:, : len(h)]
            _activate(h, ctx.gelu, out=active)
            d_w_2.addmm_(g[cut].t(), active, alpha=ctx.scale)
            torch.addmm(d_h, g[cut], w_2, beta=0, alpha=ctx.scale, out=d_h)
            if ctx.gelu:
                torch.ops.aten.gelu_backward.grad_input(d_h, h, grad_input=d_h)
            else:
                torch.ops.aten.threshold_backward.grad_input(d_h, h, 0, grad_input=d_h)
            d_w_1.addmm_(d_h.t(), x[cut])
            d_b_1.addmv_(d_h.t(), d_h.new_ones(len(d_h)))  # faster than a sum over rows
            if d_x is not None:
                torch.mm(d_h, w_1, out=d_x[cut])
        return d_x, d_w_1, d_b_1, d_w_2, g.sum(0), None, None


def _sweep(
    x: Tensor,
    w_1: Tensor,
    b_1: Tensor,
    w_2: Tensor,
    b_2: Tensor,
    p: float,
    gelu: bool,
    wide: Sequence[Tensor] | None,
) -> Tensor:
    """The output (T, d); W_1 x + b_1, or -DROPPED, goes to the tiles `wide` if they are given."""
    cuts = _tiles(len(x), len(w_1))
    buffer = x.new_empty(_longest(cuts), len(w_1))
    out = torch.empty_like(x)
    for i, cut in enumerate(cuts):
        active = buffer[: cut.stop - cut.start]
        h = active if wide is None else wide[i]
        if p:
            torch.add(b_1, draw_dropped(h.numel(), p).view_as(h), alpha=-DROPPED, out=h)
        else:
            h.copy_(b_1)
        h.addmm_(x[cut], w_1.t())
        _activate(h, gelu, out=active)
        torch.addmm(b_2, active, w_2.t(), alpha=keep_scale(p), out=out[cut])
    return out


def _activate(h: Tensor, gelu: bool, out: Tensor) -> None:
    """The activation of h, not yet scaled; out may be h."""
    if gelu:
        torch.ops.aten.gelu.out(h, out=out)
    else:
        torch.clamp(h, min=0.0, out=out)


def _plain_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    """The same derivative in ordinary operations, which have derivatives of their own."""
    inputs, wide = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
    x, w_1, b_1, w_2, b_2 = inputs
    h = F.linear(x, w_1, b_1)
    if wide:
        h = h.masked_fill(torch.cat(wide) < -DROPPED / 2, -DROPPED)
    active = F.gelu(h) if ctx.gelu else F.relu(h)
    out = F.linear(active * ctx.scale, w_2, b_2)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, g, create_graph=True))
    return *(next(found) if t.requires_grad else None for t in inputs), None, None


def _tiles(rows: int, hidden: int) -> list[slice]:
    """Equal tiles of the rows, none with more than TILE numbers of the hidden width."""
    number = -(-rows * hidden // TILE)
    size = -(-rows // max(number, 1))
    return [slice(i, min(i + size, rows)) for i in range(0, rows, max(size, 1))]


def _longest(cuts: list[slice]) -> int:
    return max((cut.stop - cut.start for cut in cuts), default=0)
