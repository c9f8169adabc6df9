"""Causal sums: the running mean of free weights, the chunked scan of tied ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_CHUNK = 64


def running_mean(
    x: Tensor, valid: Tensor | None, total: Tensor, count: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Means of the valid rows up to every position, (B, N, d), going on from a total (B, d) of
    `count` (B,) earlier rows; returns the means, the new total and the new count.

    Queries and keys are linear in x, so their running means (appendix, figure 3) are those of the
    running mean of x: half the work, and a state of d numbers instead of 2 d.
    """
    batch, length, _ = x.shape
    if valid is None:
        steps = torch.arange(1, length + 1, device=x.device).expand(batch, length)
    else:
        x = x.masked_fill(~valid.unsqueeze(-1), 0.0)
        steps = valid.cumsum(-1)
    counts = count.unsqueeze(-1) + steps  # (B, N)
    divisor = counts.clamp(min=1).to(x.dtype).unsqueeze(-1)
    if torch.compiler.is_compiling():
        sums = x.cumsum(1) + total.unsqueeze(1)
        return sums / divisor, sums[:, -1], counts[:, -1]
    means = _RunningMean.apply(x, total, divisor)
    return means, total + x.sum(1), counts[:, -1]


class _RunningMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, total: Tensor, divisor: Tensor) -> Tensor:
        ctx.save_for_backward(divisor)
        return x.cumsum(1).add_(total.unsqueeze(1)).div_(divisor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        (divisor,) = ctx.saved_tensors
        sums = (g / divisor).flip(1).cumsum(1).flip(1)
        return sums, sums[:, 0], None


def causal_scan(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`out_i = sum_{j <= i} <q_i, k_j> v_j` and the final state `sum_j k_j v_j^T`.

    q, k: (..., N, m), v: (..., N, s), state: (..., m, s); out: (..., N, s). Within a chunk the
    masked product is formed, between chunks the state is carried: cost linear in N.
    """
    length = q.shape[-2]
    pad = -length % _CHUNK
    if pad:
        q, k, v = (F.pad(t, (0, 0, 0, pad)) for t in (q, k, v))
    q, k, v = (t.unflatten(-2, (-1, _CHUNK)) for t in (q, k, v))  # (..., C, chunk, ·)
    sums = (k.mT @ v).cumsum(-3)  # (..., C, m, s): after each chunk
    if state is not None:
        sums = sums + state.unsqueeze(-3)
    first = torch.zeros_like(sums[..., :1, :, :]) if state is None else state.unsqueeze(-3)
    before = torch.cat([first, sums[..., :-1, :, :]], dim=-3)
    # A later NaN must not reach earlier rows as 0 * NaN; the rows after it have it from q k^T.
    v = v.masked_fill(k.isnan().any(-1, keepdim=True), 0.0)
    out = q @ before + (q @ k.mT).tril() @ v
    return out.flatten(-3, -2)[..., :length, :], sums[..., -1, :, :]
