"""The rows F_X that carry a sequence into data-dependent weights, `W_e|X = F_X^T W_e`.

Anchors are taken from the VALID positions only, so padding never enters, and rows repeat where a
sequence has fewer valid positions than there are anchors: one layer serves every length.
"""

from __future__ import annotations

import functools
from operator import floordiv
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..distributed import WHOLE, WholeSequence
from ..theory.precision import widen
from ..theory.transforms import is_transformed
from .ordering import valid_first
from .reference import hide


def sampled_positions(length: Tensor, n: int, rule: str = "sample") -> Tensor:
    """`round(linspace(0, L - 1, n))` for every L of length (B,), as (B, n), in exact integers.

    Ties round to even; the rule "paper" rounds down. An empty sequence gets position 0.
    """
    steps = max(n - 1, 1)
    along = torch.arange(n, device=length.device) * (length - 1).clamp(min=0).unsqueeze(-1)
    if rule == "paper":
        return along // steps
    whole, twice = along // steps, 2 * (along % steps)
    return whole + (twice > steps).long() + ((twice == steps) & (whole % 2 == 1)).long()


def _unmasked_positions(length: int, n: int, rule: str, device: torch.device) -> Tensor:
    if torch.compiler.is_compiling():
        return sampled_positions(torch.full((1,), length, device=device), n, rule)
    return torch.tensor(_remembered_positions(length, n, rule), device=device)


@functools.lru_cache(maxsize=256)
def _remembered_positions(length: int, n: int, rule: str) -> tuple[tuple[int, ...], ...]:
    """The numbers, not a tensor: that one would remember device modes and inference mode too."""
    steps, cut = max(n - 1, 1), floordiv if rule == "paper" else _round_half_even
    return (tuple(cut(i * (length - 1), steps) for i in range(n)),)


def sampled_count(length: int, n: int, rule: str = "sample") -> int:
    """How many different positions n sampled anchors have."""
    return len({*_remembered_positions(length, n, rule)[0]})


def _round_half_even(a: int, b: int) -> int:
    whole, rest = divmod(a, b)
    return whole + (2 * rest > b or (2 * rest == b and whole % 2 == 1))


def anchor_weights(
    x: Tensor,
    ignore: Tensor | None,
    w: Tensor,
    rule: str | Tensor,
    shards: WholeSequence,
    *,
    eager: bool,
) -> tuple[Tensor, Tensor]:
    """x (B, N, d) itself, to be used from now on (see `sample_anchors`), and `W_e|X = F_X^T W_e`,
    transposed, (B, 2, h, s, p), of the parameters w (2, h, s, n)."""
    # a graph with a dynamic length must not ask how long the sequence is: eager mode first
    summed = eager and rule in ("sample", "paper") if isinstance(rule, str) else False
    summed = summed and shards.whole and w.shape[-1] > x.shape[1]
    if (
        summed and isinstance(rule, str) and x.device.type in ("cpu", "cuda")
    ):  # where there are sums of rows
        return x, spread_projections(x, ignore, w, rule)
    x, rows = anchor_rows(x, ignore, w.shape[-1], rule, shards)
    return x, anchor_projections(rows, w)


def anchor_rows(
    x: Tensor, ignore: Tensor | None, n: int, rule: str | Tensor, shards: WholeSequence = WHOLE
) -> tuple[Tensor, Tensor]:
    """x itself, to be used from now on (see `sample_anchors`), and F_X: n rows (B, n, d) of its
    valid part by a rule, or by learned points (n, d). A sample without any valid position has zero
    rows."""
    if isinstance(rule, Tensor):
        return x, learned_anchors(hide(x, ignore), ignore, rule, shards)
    if rule == "mean":
        return x, mean_anchors(hide(x, ignore), ignore, n, shards)
    if not shards.whole:
        return x, _sharded_sample(x, ignore, n, rule, shards)
    x, rows = sample_anchors(x, ignore, n, rule)
    if ignore is not None:
        rows = rows.masked_fill(ignore.all(-1)[:, None, None], 0.0)
    return x, rows


def learned_anchors(
    x: Tensor, ignore: Tensor | None, points: Tensor, shards: WholeSequence = WHOLE
) -> Tensor:
    """F_X[t] = sum_j kappa(u_t, x_j) x_j / sum_j kappa(u_t, x_j), (B, n, d), over the valid rows of
    x (B, N, d), with points u (n, d) and kappa(u, x) = exp(<u, x> / sqrt(d)): rows that are like a
    point, wherever they stand."""
    if not shards.whole:
        raise ValueError('anchor_rule is "learned" and the sequence is sharded; expected "mean"')
    scores = widen(points).to(x) @ x.mT * x.shape[-1] ** -0.5  # (B, n, N)
    if ignore is not None:
        empty = ignore.all(-1)[:, None, None]
        scores = scores.masked_fill(ignore[:, None] & ~empty, -torch.inf)
    anchors: Tensor = scores.softmax(-1) @ x
    return anchors if ignore is None else anchors.masked_fill(empty, 0.0)


def anchor_projections(rows: Tensor, w: Tensor) -> Tensor:
    """`W_e|X = F_X^T W_e`, transposed, (B, 2, h, s, p), of anchor rows F_X (B, n, d) and the
    parameters w (2, h, s, n)."""
    heads = rows.unflatten(-1, (w.shape[1], -1)).permute(2, 1, 0, 3)  # (h, n, B, p)
    by_head = w.transpose(0, 1).flatten(1, 2)  # (h, 2s, n)
    # all samples are columns of one product a head
    made = torch.bmm(by_head, heads.flatten(2)).unflatten(2, heads.shape[2:])  # (h, 2s, B, p)
    projections: Tensor = made.unflatten(1, (2, -1)).permute(3, 1, 0, 2, 4)
    return projections


def spread_projections(x: Tensor, ignore: Tensor | None, w: Tensor, rule: str = "sample") -> Tensor:
    """`anchor_projections` of the sampled rows of x (B, N, d) where anchors outnumber positions.

    Every row is then taken many times, so the weights of its anchors are summed first:
    `F_X^T W = X^T (S^T W)` with the selection F_X = S X. Consecutive anchors share a row.
    """
    sides, heads, rank, n = w.shape
    rows = widen(w.permute(3, 1, 0, 2).reshape(n, -1))  # (n, h * 2 * s)
    if ignore is None:
        at = _unmasked_positions(x.shape[1], n, rule, x.device)
        seats = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        spread = _Spread.apply(rows, torch.searchsorted(at, seats), at).to(x.dtype)  # (1, N, .)
        return anchor_projections(x, spread[0].t().view(heads, sides, rank, -1).transpose(0, 1))
    valid = ~ignore
    among_valid = sampled_positions(valid.sum(-1), n, rule)
    # the anchors before every position, which are those before the valid positions before it
    before = torch.searchsorted(among_valid, valid.cumsum(-1) - valid.long())
    at = valid_first(ignore)[0].gather(1, among_valid)
    spread = _Spread.apply(rows, before, at).to(x.dtype)  # (B, N, h * 2 * s)
    x = x.masked_fill(ignore.unsqueeze(-1), 0.0)
    by_head = spread.unflatten(-1, (heads, -1)).permute(0, 2, 3, 1)  # (B, h, 2s, N)
    made = by_head @ x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, h, 2s, p)
    projections: Tensor = made.unflatten(2, (2, -1)).transpose(1, 2)
    return projections


class _Spread(torch.autograd.Function):
    """Sums (B, N, c) of the rows w (n, c) whose anchors are at each position. before (B, N): the
    anchors before it; at (B, n): the position of each. Both ways a sum of rows."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, before: Tensor, at: Tensor) -> Tensor:
        ctx.save_for_backward(at)
        ctx.length = before.shape[1]
        samples = torch.arange(len(at), device=w.device).unsqueeze(1)
        anchors = torch.arange(len(w), device=w.device).repeat(len(at))
        begins = (before + samples * len(w)).flatten()
        return functional.embedding_bag(anchors, w, begins, mode="sum").view(*before.shape, -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (at,) = ctx.saved_tensors
        samples = torch.arange(len(at), device=g.device).unsqueeze(1)
        at = (at + samples * ctx.length).t().contiguous()  # (n, B), among all positions
        return functional.embedding_bag(at, g.flatten(0, 1), mode="sum"), None, None


def sample_anchors(
    x: Tensor, ignore: Tensor | None, n: int, rule: str = "sample"
) -> tuple[Tensor, Tensor]:
    """n evenly spaced valid rows of x (B, N, d): returns x itself and rows (B, n, d).

    The x that is returned must be used in place of the argument: in the backward pass the few rows'
    gradient is then added into the gradient of x instead of into a second tensor of its size.
    """
    batch, length, width = x.shape
    if ignore is None:
        at = _unmasked_positions(length, n, rule, x.device).expand(batch, n)
    else:
        among_valid = sampled_positions((~ignore).sum(-1), n, rule)
        at = valid_first(ignore)[0].gather(1, among_valid)
    transformed = torch.compiler.is_compiling() or is_transformed()
    if transformed or not (x.requires_grad and torch.is_grad_enabled()):
        return x, x.gather(1, at.unsqueeze(-1).expand(-1, -1, width))
    x, rows = _Rows.apply(x, at)
    return x, rows


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(at)
        return x.view_as(x), x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

    @staticmethod
    def backward(ctx: Any, g: Tensor, g_rows: Tensor) -> tuple[Tensor, None]:
        (at,) = ctx.saved_tensors
        index = at.unsqueeze(-1).expand_as(g_rows)
        # In place, since the products behind x made this gradient for us alone; unless it is itself
        # to be differentiated, or is one of a batch of gradients.
        if torch.is_grad_enabled() or is_transformed():
            return g.scatter_add(1, index, g_rows), None
        return g.scatter_add_(1, index, g_rows), None


def _sharded_sample(
    x: Tensor, ignore: Tensor | None, n: int, rule: str, shards: WholeSequence
) -> Tensor:
    """The sampled rows where x is this worker's part of the sequences; only rows travel."""
    own = WHOLE.count(x, ignore).unsqueeze(-1)  # (B, 1)
    first, total = shards.number(torch.zeros_like(own), own.squeeze(-1))
    at = sampled_positions(total, n, rule) - first  # (B, n), counted from this part's first
    here = (at >= 0) & (at < own)
    at = at.clamp(min=0).minimum((own - 1).clamp(min=0))
    if ignore is not None:
        at = valid_first(ignore)[0].gather(1, at)
    rows = x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
    return shards.total(rows.masked_fill(~here.unsqueeze(-1), 0.0))


def mean_anchors(x: Tensor, ignore: Tensor | None, n: int, shards: WholeSequence) -> Tensor:
    """Means of n equal segments of the valid rows of x (B, N, d): (B, n, d).

    Segment i holds the valid positions j with `floor(j k / L) = floor(i k / n)`, `k = min(n, L)`:
    consecutive, all positions used once, sizes equal up to one; for L < n single rows repeat.
    """
    batch, length, width = x.shape
    if ignore is None:
        rank = torch.arange(length, device=x.device).expand(batch, length)
    else:
        rank = (~ignore).cumsum(-1) - 1
    rank, count = shards.number(rank, WHOLE.count(x, ignore))
    count = count.clamp(min=1).unsqueeze(-1)  # (B, 1)
    segments = count.clamp(max=n)
    segment = (rank * segments) // count  # (B, N)
    if ignore is not None:
        segment = segment.masked_fill(ignore, n)  # a bin of its own, dropped below
    index = segment.unsqueeze(-1).expand(-1, -1, width)
    wide = widen(x)
    sums = wide.new_zeros(batch, n + 1, width).scatter_add(1, index, wide)
    sizes = torch.zeros(batch, n + 1, dtype=torch.long, device=x.device)
    sizes = sizes.scatter_add(1, segment, torch.ones_like(segment))
    sums, sizes = shards.total(sums[:, :n]), shards.sum_(sizes[:, :n])
    means = sums / sizes.clamp(min=1).unsqueeze(-1)
    chosen = torch.arange(n, device=x.device) * segments // n  # (B, n)
    return means.to(x.dtype).gather(1, chosen.unsqueeze(-1).expand(-1, -1, width))
