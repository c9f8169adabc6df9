"""Causal sums in chunks: what a linear attention needs to look back, and to go on from a state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

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
    q, k, v = (t.to(before.values.dtype) for t in (q, k, v))
    if torch.compiler.is_compiling():
        at, beyond = _whole_chunks(length, q.device)
        q, k, v = (t.index_select(-2, at).masked_fill(beyond.unsqueeze(-1), 0.0) for t in (q, k, v))
        if logs is not None:
            logs = logs.index_select(-1, at).masked_fill(beyond, -torch.inf)
        chunk = _CHUNK
    else:
        chunk = min(_CHUNK, length)
        if pad := -length % chunk:
            q, k, v = (F.pad(t, (0, 0, 0, pad)) for t in (q, k, v))
            logs = None if logs is None else F.pad(logs, (0, pad), value=-torch.inf)
    chunks = q.shape[-2] // chunk
    q, k, v = (t.unflatten(-2, (chunks, chunk)) for t in (q, k, v))  # (B, h, C, chunk, .)
    # A later NaN must not reach earlier rows as 0 * NaN; the rows after it have it from the kernel.
    seen = v.masked_fill(k.isnan().any(-1, keepdim=True), 0.0)
    kernel = q @ k.mT  # (B, h, C, chunk, chunk)
    if logs is None or before.peak is None:
        carried, after = _carry(k, v, before)
    else:
        logs = logs.to(q.dtype)
        peaks = torch.cat([before.peak.unsqueeze(-1), logs], -1).cummax(-1).values
        logs, at_rows = (t.unflatten(-1, (chunks, chunk)) for t in (logs, peaks[..., 1:]))
        kernel = kernel * (logs.unsqueeze(-2) - at_rows.unsqueeze(-1)).clamp(max=0.0).exp()
        ends = torch.cat([before.peak.unsqueeze(-1), at_rows[..., -1]], -1)  # (B, h, C + 1)
        k = k * (logs - ends[..., 1:, None]).exp().unsqueeze(-1)
        carried, after = _carry_rescaled(k, v, before, ends)
        q = q * (ends[..., :-1, None] - at_rows).exp().unsqueeze(-1)
    kernel = kernel.tril()
    out = (q @ carried.values + kernel @ seen).flatten(2, 3)
    rows = ((q @ carried.keys.unsqueeze(-1)).squeeze(-1) + kernel.sum(-1)).flatten(2, 3)
    if torch.compiler.is_compiling():
        inside = torch.arange(length, device=q.device)
        out, rows = out.index_select(-2, inside), rows.index_select(-1, inside)
    return out[..., :length, :].to(dtype), rows[..., :length].to(dtype), after


def _carry(k: Tensor, v: Tensor, before: Sums) -> tuple[Sums, Sums]:
    """The sums before each chunk, (B, h, C, m, c) and (B, h, C, m), and those after all."""
    values = torch.cat([before.values.unsqueeze(2), k.mT @ v], 2).cumsum(2)
    keys = torch.cat([before.keys.unsqueeze(2), k.sum(-2)], 2).cumsum(2)
    # copies: a view would keep the sums of all chunks alive as long as the state
    after = Sums(values[:, :, -1].contiguous(), keys[:, :, -1].contiguous())
    return Sums(values[:, :, :-1], keys[:, :, :-1]), after


def _carry_rescaled(k: Tensor, v: Tensor, before: Sums, ends: Tensor) -> tuple[Sums, Sums]:
    """The same with sums in units of exp(ends): they are rescaled whenever the peak grows."""
    shrink = (ends[..., :-1] - ends[..., 1:]).exp().unbind(-1)
    values, keys = [before.values], [before.keys]
    new = zip(shrink, (k.mT @ v).unbind(2), k.sum(-2).unbind(2), strict=True)
    for factor, more_values, more_keys in new:
        values.append(torch.addcmul(more_values, values[-1], factor[..., None, None]))
        keys.append(torch.addcmul(more_keys, keys[-1], factor[..., None]))
    carried = Sums(torch.stack(values[:-1], 2), torch.stack(keys[:-1], 2))
    return carried, Sums(values[-1], keys[-1], ends[..., -1].contiguous())


def _whole_chunks(length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions that fill whole chunks, and which of them are padding, for a graph whose length is
    symbolic. At least two chunks: any question about a size would tie the graph to some lengths."""
    chunks = (length + 2 * _CHUNK - 1) // _CHUNK
    at = torch.arange(chunks * _CHUNK, device=device)
    return at.clamp(max=length - 1), at >= length
