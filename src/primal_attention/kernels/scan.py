"""Causal sums: running means, and a scan in chunks that continues from a state."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.transforms import is_transformed
from .graphs import is_exporting

_CHUNK = 64
_LOWEST = -1e30  # the peak of nothing: finite, so that differences of peaks are never inf - inf


class Sums(NamedTuple):
    """What has been seen: values (B, h, m, c), the sum of `k_j v_j^T`; keys (B, h, m), that of k_j;
    both in units of exp(peak), peak (B, h), where keys come with logarithmic weights."""

    values: Tensor
    keys: Tensor
    peak: Tensor | None = None

    @staticmethod
    def zero(like: Tensor, shape: tuple[int, int, int, int], *, weighted: bool = False) -> Sums:
        """Nothing seen yet; shape = (B, h, m, c). Sums are kept in float32 at least."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        values = like.new_zeros(shape, dtype=dtype)
        peak = like.new_full(shape[:2], _LOWEST, dtype=dtype) if weighted else None
        return Sums(values, like.new_zeros(shape[:3], dtype=dtype), peak)


def causal_scan(
    q: Tensor, k: Tensor, v: Tensor, before: Sums, logs: Tensor | None = None
) -> tuple[Tensor, Tensor, Sums]:
    """Sums over all j <= i, earlier ones included:

        o_i = sum_j w_ij <q_i, k_j> v_j      r_i = sum_j w_ij <q_i, k_j>      w_ij = 1

    q, k (B, h, N, m), v (B, h, N, c); returns o (B, h, N, c), r (B, h, N) and the sums after.
    Within a chunk the kernel is formed, between chunks the sums are carried, everything in their
    type: cost linear in N.

    logs (B, h, N), without gradient, are logarithms of weights of the keys that may not fit any
    number: w_ij = exp(logs_j - peak_i) with the running maximum peak_i = max_{j <= i} logs_j. The
    factor exp(-peak_i) cancels in o_i / r_i. -inf is a key without any weight.
    """
    length, dtype = q.shape[-2], q.dtype
    q, k, v = _chunks(*(t.to(before.values.dtype) for t in (q, k, v)))  # (B, h, C, chunk, .)
    seen, kernel = _without_nan(k, v), q @ k.mT  # (B, h, C, chunk, chunk)
    if logs is None or before.peak is None:
        values, keys = _carry(before.values, k.mT @ v, 2), _carry(before.keys, k.sum(-2), 2)
        # copies: a view would keep the sums of all chunks alive as long as the state
        after = Sums(values[:, :, -1].contiguous(), keys[:, :, -1].contiguous())
        carried = Sums(values[:, :, :-1], keys[:, :, :-1])
    else:
        (logs,) = _chunks(logs.to(q.dtype).unsqueeze(-1), fill=-torch.inf)
        logs = logs.squeeze(-1)  # (B, h, C, chunk)
        at_rows, ends = _running_peaks(before.peak.unsqueeze(-1), logs)
        kernel = kernel * (logs.unsqueeze(-2) - at_rows.unsqueeze(-1)).clamp(max=0.0).exp()
        k = k * (logs - ends[..., 1:, None]).exp().unsqueeze(-1)
        carried, after = _carry_rescaled(k, v, before, ends)
        q = q * (ends[..., :-1, None] - at_rows).exp().unsqueeze(-1)
    kernel = kernel.tril()
    out = q @ carried.values + kernel @ seen
    rows = q @ carried.keys.unsqueeze(-1) + kernel.sum(-1, keepdim=True)
    return _rows(out, length).to(dtype), _rows(rows, length).squeeze(-1).to(dtype), after


def causal_scan_both(phi: Tensor, dual: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Sums along a kernel and along its transpose, both over j <= i:

        e_i = sum_{j <= i} <phi_q(x_i), phi_k(x_j)> h_r(x_j)      r_i likewise, sides exchanged

    phi (B, z, h, N, m): phi_q, phi_k; dual (B, z, h, N, s): h_e, h_r; state (B, z, h, m, s): the
    sums `phi_q h_e^T` and `phi_k h_r^T` of what came before. Returns the scores (B, z, h, N, s) and
    the state after. One kernel a chunk serves both sides.
    """
    length, dtype = phi.shape[-2], phi.dtype
    phi, dual = _chunks(phi.to(state.dtype), dual.to(state.dtype))  # (B, z, h, C, chunk, .)
    sums = _carry(state, phi.mT @ dual, 3)  # (B, z, h, C + 1, m, s)
    seen, kernel = _without_nan(phi, dual), phi[:, 0] @ phi[:, 1].mT  # (B, h, C, chunk, chunk)
    within = torch.stack([kernel.tril() @ seen[:, 1], kernel.triu().mT @ seen[:, 0]], dim=1)
    scores = phi @ sums[..., :-1, :, :].flip(1) + within
    return _rows(scores, length).to(dtype), sums[..., -1, :, :].contiguous()


def _chunks(*tensors: Tensor, fill: float = 0.0) -> list[Tensor]:
    """Every (..., N, c) as (..., C, chunk, c), filled up to whole chunks."""
    length = tensors[0].shape[-2]
    if torch.compiler.is_compiling():
        # By index, to at least two chunks: any question about a symbolic length (is there something
        # to pad? is there one chunk?) would tie the graph to some lengths.
        chunk, chunks = _CHUNK, (length + 2 * _CHUNK - 1) // _CHUNK
        at = torch.arange(chunks * chunk, device=tensors[0].device)
        beyond, at = (at >= length).unsqueeze(-1), at.clamp(max=length - 1)
        whole = [t.index_select(-2, at).masked_fill(beyond, fill) for t in tensors]
    else:
        chunks = -(-length // _CHUNK)
        chunk = -(-length // chunks)  # of equal size, so that little is filled up
        pad = chunks * chunk - length
        whole = [F.pad(t, (0, 0, 0, pad), value=fill) if pad else t for t in tensors]
    return [t.unflatten(-2, (chunks, chunk)) for t in whole]


def _rows(chunks: Tensor, length: int) -> Tensor:
    """The first `length` rows of (..., C, chunk, c)."""
    rows = chunks.flatten(-3, -2)
    if torch.compiler.is_compiling():
        return rows.index_select(-2, torch.arange(length, device=rows.device))
    return rows[..., :length, :]


def _without_nan(keys: Tensor, values: Tensor) -> Tensor:
    """A later NaN must not reach earlier rows as 0 * NaN; later rows get it from the kernel."""
    return values.masked_fill(keys.isnan().any(-1, keepdim=True), 0.0)


def _running_peaks(before: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """max_{j <= i} of before (B, h, 1) and logs (B, h, C, chunk), at every row (B, h, C, chunk) and
    at the ends (B, h, C + 1) of what came before and of every chunk."""
    if not is_exporting():
        peaks = torch.cat([before, logs.flatten(2)], -1).cummax(-1).values
        at_rows = peaks[..., 1:].unflatten(-1, logs.shape[2:])
        return at_rows, torch.cat([before, at_rows[..., -1]], -1)
    # ONNX has no such operation. Within a chunk, whose size is fixed, each step doubles the number
    # of elements that have been looked at; between chunks, every end looks at all before it.
    seen, within = 1, logs
    while seen < _CHUNK:
        longer = within[..., seen:].maximum(within[..., :-seen])
        seen, within = 2 * seen, torch.cat([within[..., :seen], longer], -1)
    own = torch.cat([before, within[..., -1]], -1)
    ends = own.unsqueeze(-2).masked_fill(~_until(own), -torch.inf).amax(-1)
    return within.maximum(ends[..., :-1, None]), ends


def _until(ends: Tensor) -> Tensor:
    """Which ends (..., C + 1) are not behind another one, (C + 1, C + 1)."""
    at = torch.arange(ends.shape[-1], device=ends.device)
    return at <= at.unsqueeze(-1)


def _carry(before: Tensor, own: Tensor, dim: int) -> Tensor:
    """The sums before every chunk and after all, (..., C + 1, *end), where a sequence begins with
    `before` (..., *end) and its chunks add `own` (..., C, *end). `dim` is that of the chunks."""
    return torch.cat([before.unsqueeze(dim), own], dim).cumsum(dim)


def _carry_rescaled(k: Tensor, v: Tensor, before: Sums, ends: Tensor) -> tuple[Sums, Sums]:
    """The same with sums in units of exp(ends): they are rescaled whenever the peak grows."""
    if torch.compiler.is_compiling():
        return _carry_rescaled_at_once(k, v, before, ends)
    shrink = (ends[..., :-1] - ends[..., 1:]).exp().unbind(-1)
    values, keys = [before.values], [before.keys]
    new = zip(shrink, (k.mT @ v).unbind(2), k.sum(-2).unbind(2), strict=True)
    for factor, more_values, more_keys in new:
        values.append(torch.addcmul(more_values, values[-1], factor[..., None, None]))
        keys.append(torch.addcmul(more_keys, keys[-1], factor[..., None]))
    carried = Sums(torch.stack(values[:-1], 2), torch.stack(keys[:-1], 2))
    return carried, Sums(values[-1], keys[-1], ends[..., -1].contiguous())


def _carry_rescaled_at_once(k: Tensor, v: Tensor, before: Sums, ends: Tensor) -> tuple[Sums, Sums]:
    """Likewise, as a product of all pairs of chunks: a loop would fix the length of a graph."""
    shrink = (ends.unsqueeze(-2) - ends.unsqueeze(-1)).exp().masked_fill(~_until(ends), 0.0)
    sums = []
    for first, own in ((before.values, k.mT @ v), (before.keys, k.sum(-2))):
        parts = torch.cat([first.unsqueeze(2), own], 2)  # (B, h, C + 1, *end)
        rows = parts.flatten(3) if own.dim() == 5 else parts
        unseen = (0.0 * rows).cumsum(2)  # a later NaN must not reach earlier chunks
        carried = shrink @ rows.nan_to_num(0.0, 0.0, 0.0) + unseen
        sums.append(carried.view(parts.shape))
    values, keys = sums
    after = Sums(values[:, :, -1].contiguous(), keys[:, :, -1].contiguous(), ends[..., -1])
    return Sums(values[:, :, :-1], keys[:, :, :-1]), after


def running_mean(
    x: Tensor, ignore: Tensor | None, total: Tensor, count: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Means of the valid rows up to every position, (B, N, d), continued from a total (B, d) of
    `count` (B,) earlier rows; returns the means, the new total and the new count.

    Queries and keys are linear in x, so their running means (appendix, figure 3) are those of the
    running mean of x: half the work, and a state of d numbers instead of 2 d. Sums are taken in the
    type of the total.
    """
    batch, length, _ = x.shape
    if ignore is None:
        steps = torch.arange(1, length + 1, device=x.device).expand(batch, length)
    else:
        x = x.masked_fill(ignore.unsqueeze(-1), 0.0)
        steps = (~ignore).cumsum(-1)
    counts = count.unsqueeze(-1) + steps  # (B, N)
    divisor = counts.clamp(min=1).to(total.dtype).unsqueeze(-1)
    if torch.compiler.is_compiling() or is_transformed():
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
