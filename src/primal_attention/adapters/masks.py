"""Masks as other libraries pass them, translated exactly: which keys are ignored, and is it causal.

An attention without an N x N matrix can hide whole positions, and the future. Every mask that says
exactly this is translated; every other mask is an error, since dropping it would change the result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.graphs import is_exporting

# exp(-10,000) is zero in every floating type: libraries write -1e4, the smallest number or -inf
HIDDEN = -1e4


def hidden_pairs(mask: Tensor, *, true_means: str, biased: bool = False) -> Tensor:
    """A mask as bool, True = hidden.

    true_means: "hidden" (torch) or "visible" (Hugging Face), for bool masks, and for integer masks
    of 0 and 1. A floating mask is added to the scores: 0 = visible, -10,000 and less = hidden.
    biased: other numbers are a bias of positions that the conversion is known to drop.
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"the mask is a {type(mask).__name__}; expected a tensor or None")
    if mask.dtype == torch.bool:
        return mask if true_means == "hidden" else ~mask
    if mask.is_floating_point():
        hidden = mask <= HIDDEN
        if biased:
            return hidden
        message = "the mask adds a finite number to single scores, which this attention does not"
        require((hidden | (mask == 0)).all(), f"{message} have; expected only 0 and -inf")
        return hidden
    require(((mask == 0) | (mask == 1)).all(), "an integer mask holds other numbers than 0 and 1")
    return (mask == 1) if true_means == "hidden" else (mask == 0)


def ignored_keys(
    hidden: Tensor | None,
    *,
    batch: int,
    queries: int,
    keys: int,
    causal: bool,
    cross: bool = False,
    window: int | None = None,
) -> Tensor | None:
    """The keys to ignore, (B, M) bool, of a mask that hides whole keys and, if causal, the future.

    hidden: (B, heads, N, M), where 1 may stand for any size. The queries are the last N of the M
    positions (M > N: there is a past); with a cache of fixed size the mask may be longer than M,
    and hides what is beyond. Rows of queries that are ignored themselves may hold anything: their
    output has no meaning. window: positions that are not nearer than this to the query may be
    hidden as well, which the conversion is known to drop.
    """
    if hidden is None:
        return None
    if hidden.dim() == 4 and hidden.shape[-1] > keys:
        require(hidden[..., keys:].all(), f"the mask shows keys beyond the {keys} that there are")
        hidden = hidden[..., :keys]
    shape = tuple(hidden.shape)
    allowed = ((1, batch), shape[1:2], (1, queries), (1, keys))
    if len(shape) != 4 or any(n not in sizes for n, sizes in zip(shape, allowed, strict=True)):
        expected = f"({batch}, heads, {queries}, {keys}), where 1 may stand for any size"
        raise ValueError(f"the mask has shape {shape}; expected {expected}")
    by_head, hidden = hidden, hidden[:, 0]  # (B or 1, N or 1, M)
    if by_head.shape[1] > 1:
        require((by_head == hidden.unsqueeze(1)).all(), "the mask differs between heads")
    if not causal and hidden.shape[1] == 1:
        return hidden.expand(batch, 1, keys)[:, 0]
    hidden = hidden.expand(batch, queries, keys)
    future = torch.ones(queries, keys, dtype=torch.bool, device=hidden.device)
    future = future.triu(keys - queries + 1) if causal else torch.zeros_like(future)
    places = torch.arange(keys, device=hidden.device)
    far = torch.zeros_like(future)
    if window is not None:
        far = (places[keys - queries :, None] - places).abs() >= window
    ignore = (hidden | future | far).all(1)  # (B, M): hidden from every query that could see it
    if window is not None:  # out of sight of all, in a call of a few positions after a long past
        ignore = ignore & ~far.all(0)
    wrong = (hidden != (future | ignore.unsqueeze(1))) & ~far  # (B, N, M)
    if not cross:
        wrong = wrong & ~ignore[:, keys - queries :].unsqueeze(-1)
    kind = "whole keys and the future" if causal else "whole keys"
    require(
        ~wrong.any(),
        "the mask hides single pairs of positions, or the future only in part, which an attention "
        f"without an N x N matrix cannot honour; expected one that hides {kind} (causal={causal})",
    )
    return ignore


def expect_same_past(ignore: Tensor | None, past: int, state: Any) -> Tensor | None:
    """The part of a mask about the new positions; its past must be what the state has seen."""
    seen = getattr(state, "seen", None)
    if seen is not None:
        visible = past if ignore is None else (~ignore[:, :past]).sum(-1)
        require(
            (seen == visible).all(),
            "the attention mask shows other past positions than those that the cache summed up; "
            "expected the mask of the earlier calls, continued",
        )
    return None if ignore is None else ignore[:, past:]


def union(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """What either ignores."""
    if first is None or second is None:
        return second if first is None else first
    return first | second


def require(fine: Tensor, message: str) -> None:
    """Raise a ValueError with the message unless fine is true; in compiled graphs when it runs."""
    if not torch.compiler.is_compiling():
        if not bool(fine):
            raise ValueError(message)
    elif not is_exporting():  # a compiled graph can only check while it runs
        torch._assert_async(fine, message)
