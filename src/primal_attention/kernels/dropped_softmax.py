"""Softmax attention by torch's kernels; with dropout on a CPU, by tiles that stay in the cache.

torch's fused kernel for CPUs knows no dropout. With dropout in training, torch forms the N x N
matrices of all heads, several times, and draws the entries' random numbers one by one: that took
two to three times as long as what is here, and as many floats to remember as here there are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .random_bits import draw_mask, is_eager_cpu, keep_scale

TILE = 2**18  # entries of attention matrices that are treated at a time


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    triangle: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """`dropout(softmax(q k^T / sqrt(p) + mask)) v`: q (B, h, N, p), k (B, h, M, p), v (B, h, M, c)
    -> (B, h, N, c). mask, broadcast to (B, h, N, M): bool, True = visible, or float, added;
    triangle: the causal mask, where it is the only one. The output of a query without any
    visible key is finite and means nothing."""
    if not dropout or not _is_served(q, mask):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=triangle
        )
    if triangle:
        mask = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return dropped_softmax(q, k, v, mask, dropout)


def dropped_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """The same in tiles, with a backward pass of its own."""
    out: Tensor = _DroppedSoftmax.apply(q, k, v, mask, dropout)
    return out


def _is_served(q: Tensor, mask: Tensor | None) -> bool:
    """Whether `dropped_softmax` may serve: not for a mask that is learned, and not where the user
    wants no fused kernels (torch.nn.attention.sdpa_kernel), which is for second derivatives."""
    if not is_eager_cpu(q):  # first: a compiled graph cannot ask about kernels
        return False
    learned = mask is not None and mask.requires_grad
    fused = torch.backends.cuda.flash_sdp_enabled()  # the switch serves the CPU as well
    return q.dtype in (torch.float32, torch.float64) and fused and not learned


class _DroppedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
    ) -> Tensor:
        ctx.heads, ctx.scale, ctx.kept = q.shape[:2], q.shape[-1] ** -0.5, keep_scale(dropout)
        q, k, v = (q * ctx.scale).flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        shape = (len(q), q.shape[1], k.shape[1])
        keep = draw_mask(shape[0] * shape[1] * shape[2], dropout).view(shape)
        out = v.new_empty(*shape[:2], v.shape[2])
        for heads, rows, (weights,) in _tiles(q, k, buffers=1):
            _softmax(q[heads, rows], k[heads], _cut(mask, ctx.heads, heads, rows), weights)
            torch.bmm(weights.mul_(keep[heads, rows]), v[heads], out=out[heads, rows])
        out.mul_(ctx.kept)
        ctx.save_for_backward(q, k, v, mask, keep, out)
        return out.view(*ctx.heads, *out.shape[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # constants would be silently wrong
            raise RuntimeError(
                "softmax attention with dropout has no second derivative here (create_graph=True "
                "was asked for); expected a forward under sdpa_kernel(SDPBackend.MATH)"
            )
        q, k, v, mask, keep, out = ctx.saved_tensors
        g = g.flatten(0, 1)
        # sum_j P_ij dP_ij, the correction of the softmax, is <g_i, out_i>: no N x M needed
        correction = (g * out).sum(-1, keepdim=True)
        g = g * ctx.kept
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for heads, rows, (weights, dropped, d) in _tiles(q, k, buffers=3):
            _softmax(q[heads, rows], k[heads], _cut(mask, ctx.heads, heads, rows), weights)
            here = keep[heads, rows]
            torch.mul(weights, here, out=dropped)
            dv[heads].baddbmm_(dropped.mT, g[heads, rows])
            torch.bmm(g[heads, rows], v[heads].mT, out=d)
            d.mul_(here).sub_(correction[heads, rows]).mul_(weights)
            torch.bmm(d, k[heads], out=dq[heads, rows])
            dk[heads].baddbmm_(d.mT, q[heads, rows])
        dq.mul_(ctx.scale)
        return *(t.unflatten(0, ctx.heads) for t in (dq, dk, dv)), None, None


def _softmax(q: Tensor, k: Tensor, mask: Tensor | None, out: Tensor) -> None:
    torch.bmm(q, k.mT, out=out)
    if mask is not None and mask.dtype == torch.bool:
        # not infinity: a query without any key gets finite numbers, as from torch's own kernels
        out.masked_fill_(~mask, torch.finfo(out.dtype).min)
    elif mask is not None:
        out.add_(mask)
    torch.softmax(out, -1, out=out)


def _tiles(q: Tensor, k: Tensor, *, buffers: int) -> Iterator[tuple[slice, slice, list[Tensor]]]:
    """Cut q (B * h, N, p) into blocks of heads and rows; with each, buffers (heads, rows, M)."""
    (count, length, _), keys = q.shape, k.shape[1]
    rows = max(1, min(length, TILE // keys))
    heads = max(1, min(count, TILE // (rows * keys)))
    work = q.new_empty(buffers, heads * rows * keys)
    for first in range(0, count, heads):
        for start in range(0, length, rows):
            block = slice(first, min(first + heads, count)), slice(start, min(start + rows, length))
            shape = (block[0].stop - first, block[1].stop - start, keys)
            size = shape[0] * shape[1] * keys
            yield *block, [buffer[:size].view(shape) for buffer in work]


def _cut(mask: Tensor | None, whole: torch.Size, heads: slice, rows: slice) -> Tensor | None:
    """A mask, broadcast to (B, h, N, M), for some of its B * h heads and some of its rows."""
    if mask is None:
        return None
    mask = mask[:, :, rows] if mask.shape[2] > 1 else mask
    which = torch.arange(heads.start, heads.stop)
    sample, head = which // whole[1], which % whole[1]
    part = mask[sample if mask.shape[0] > 1 else 0, head if mask.shape[1] > 1 else 0]
    return part if part.dim() == 3 else part.unsqueeze(0)
