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
    running mean of x: half the work, and a state of d numbers instead of 2 d. Sums are taken in the
    type of the total.
    """
    batch, length, _ = x.shape
    if valid is None:
        steps = torch.arange(1, length + 1, device=x.device).expand(batch, length)
    else:
        x = x.masked_fill(~valid.unsqueeze(-1), 0.0)
        steps = valid.cumsum(-1)
    counts = count.unsqueeze(-1) + steps  # (B, N)
    divisor = counts.clamp(min=1).to(total.dtype).unsqueeze(-1)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        sums = x.to(total.dtype).cumsum(1) + total.unsqueeze(1)
        return (sums / divisor).to(x.dtype), sums[:, -1], counts[:, -1]
    means = _RunningMean.apply(x, total, divisor)
    return means, total + x.sum(1, dtype=total.dtype), counts[:, -1]


class _RunningMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, total: Tensor, divisor: Tensor) -> Tensor:
        ctx.save_for_backward(divisor)
        means = x.cumsum(1, dtype=total.dtype).add_(total.unsqueeze(1)).div_(divisor)
        return means.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        (divisor,) = ctx.saved_tensors
        sums = (g / divisor).flip(1).cumsum(1).flip(1)
        return sums.to(g.dtype), sums[:, 0], None


def causal_scan(phi: Tensor, dual: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Attention along the kernel and along its transpose, each sum running over j <= i.

        e_i = sum_{j <= i} <phi_q(x_i), phi_k(x_j)> h_r(x_j)      r_i likewise, sides exchanged

    phi (B, z, h, N, m): phi_q, phi_k; dual (B, z, h, N, s): h_e, h_r; state (B, z, h, m, s): the
    sums `phi_q h_e^T` and `phi_k h_r^T` of what came before. Returns the scores (B, z, h, N, s) and
    the state after. Within a chunk the kernel is formed, once for both sides; between chunks the
    state is carried, and everything computed, in the state's type: cost linear in N.
    """
    length, dtype = phi.shape[-2], phi.dtype
    phi, dual = phi.to(state.dtype), dual.to(state.dtype)
    if torch.compiler.is_compiling():
        phi, dual = _whole_chunks(phi, dual)
        scores, state = _scan(phi, dual, state, _CHUNK)
        inside = torch.arange(length, device=phi.device)
        return scores.index_select(-2, inside).to(dtype), state
    chunk = min(_CHUNK, length)
    pad = -length % chunk
    if pad:
        phi, dual = F.pad(phi, (0, 0, 0, pad)), F.pad(dual, (0, 0, 0, pad))
    scores, state = _scan(phi, dual, state, chunk)
    return scores[..., :length, :].to(dtype), state


def _whole_chunks(phi: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
    """Padding for a graph whose length is symbolic: by index, to at least two chunks. Any question
    about a size (is there something to pad? is there one chunk?) would tie it to some lengths."""
    length = phi.shape[-2]
    chunks = (length + 2 * _CHUNK - 1) // _CHUNK
    at = torch.arange(chunks * _CHUNK, device=phi.device)
    beyond = (at >= length).unsqueeze(-1)
    at = at.clamp(max=length - 1)
    phi, dual = (t.index_select(-2, at).masked_fill(beyond, 0.0) for t in (phi, dual))
    return phi, dual


def _scan(phi: Tensor, dual: Tensor, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """`causal_scan` of a whole number of chunks."""
    chunks = phi.shape[-2] // chunk
    phi, dual = (t.unflatten(-2, (chunks, chunk)) for t in (phi, dual))  # (B, z, h, C, chunk, .)
    own = phi.mT @ dual  # (B, z, h, C, m, s)
    sums = torch.cat([state.unsqueeze(-3), own], dim=-3).cumsum(-3)  # before each chunk, after all
    # A later NaN must not reach earlier rows as 0 * NaN; the rows after it have it from the kernel.
    dual = dual.masked_fill(phi.isnan().any(-1, keepdim=True), 0.0)
    kernel = phi[:, 0] @ phi[:, 1].mT  # (B, h, C, chunk, chunk)
    within = torch.stack([kernel.tril() @ dual[:, 1], kernel.triu().mT @ dual[:, 0]], dim=1)
    scores = phi @ sums[..., :-1, :, :].flip(1) + within
    # a copy: a view would keep the sums of all chunks alive as long as the state
    return scores.flatten(-3, -2), sums[..., -1, :, :].contiguous()
